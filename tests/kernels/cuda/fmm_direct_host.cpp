#include "fmm_host.h"
#include SOURCE

extern "C" void on_host(unsigned blocks, number *sums, const vector *targets, long long target_slots,
                        const vector *sources, long long source_slots, const unsigned *groups,
                        const uint4 *jobs
#if SHIFT
                        ,
                        const vector *shifts
#endif
) {
    launch_on_host(blocks, THREADS, [=] {
        direct_sums(sums, targets, target_slots, sources, source_slots, groups, jobs
#if SHIFT
                    ,
                    shifts
#endif
        );
    });
}
