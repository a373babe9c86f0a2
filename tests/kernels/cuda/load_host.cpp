#include "host.h"
#include SOURCE

extern "C" void on_host(unsigned blocks, unsigned *out, const uint4 *words, int region_trips,
                        long long chunks, int trips) {
    launch_on_host(blocks, THREADS, [=] { sums(out, words, region_trips, chunks, trips); });
}
