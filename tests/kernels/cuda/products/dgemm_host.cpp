// The matrix product for the host. After a block's shared memory come numbers that no thread may
// write.
#include "../host.h"
#undef __shared__
#define __shared__

#define STRIPES (BLK_K * (BLK_M + BLK_N))
#define GUARD 256
extern "C" {
double2 stripes[(STRIPES + GUARD) / 2];
}
#include SOURCE

// Adds A B to C. Returns how many numbers of shared memory were not written, plus how many after
// it were.
extern "C" int on_host(unsigned blocks, double *c, const double *a, const double *b, long long rows,
                       long long depth) {
    double *const numbers = (double *)stripes;
    for (int i = 0; i < STRIPES + GUARD - 1; i++) numbers[i] = NAN;
    launch_on_host(blocks, THREADS, [=] { add_product(c, a, b, rows, depth); });
    int wrong = 0;
    for (int i = 0; i < STRIPES + GUARD - 1; i++) wrong += std::isnan(numbers[i]) == (i < STRIPES);
    return wrong;
}
