#include "fmm_host.h"
#include SOURCE

extern "C" void on_host(unsigned blocks, number *sums, const vector *points, const unsigned *groups,
                        const uint4 *jobs, long long slots) {
    launch_on_host(blocks, THREADS, [=] { direct_sums(sums, points, slots, points, slots, groups, jobs); });
}
