#include "host.h"
#include SOURCE

extern "C" void on_host(unsigned blocks, number *out, const number *start, const vector *words,
                        int region_trips, const number *by, long long chunks, int trips) {
    launch_on_host(blocks, THREADS, [=] {
        multiply_adds(out, start, words, region_trips, by[0], by[1], by[2], by[3], chunks, trips);
    });
}
