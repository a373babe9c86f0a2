#include "host.h"
#include SOURCE

extern "C" void link_on_host(unsigned *lines, const unsigned *order, int n_lines, int chains) {
    launch_on_host(3, THREADS, [=] { link_lines(lines, order, n_lines, chains); });
}
extern "C" void on_host(unsigned *places, const unsigned *lines, int n_lines, int chains,
                        long long trips) {
    launch_on_host(chains, THREADS, [=] { chase(places, lines, n_lines, trips); });
}
