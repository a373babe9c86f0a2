#include "host.h"
static inline float reciprocal(float x) { return 1.0f / x; }
static inline float reciprocal_root(float x) { return 1.0f / std::sqrt(x); }
#include SOURCE

extern "C" void on_host(unsigned blocks, float *out, const float *start, const float *by,
                        long long chunks, int trips) {
    launch_on_host(blocks, THREADS, [=] {
        special_functions(out, start, by[0], by[1], by[2], by[3], by[4], by[5], chunks, trips);
    });
}
