#include "fmm_host.h"
#include SOURCE

extern "C" void on_host(unsigned tiles, double *out, long long out_first, int out_stride,
                        const double *in, long long in_first, int in_stride, const double *matrices,
                        int inner, int columns, const unsigned *rows_out, const unsigned *begins,
                        const unsigned *matrix_of, const unsigned *rows_in, const double *scales) {
    for (unsigned across = 0; across < columns / SIDE; across++)
        launch_on_host(tiles, THREADS, [=] {
            blockIdx.y = across;
            products(out, out_first, out_stride, in, in_first, in_stride, matrices, inner, columns,
                     rows_out, begins, matrix_of, rows_in, scales);
        });
}
