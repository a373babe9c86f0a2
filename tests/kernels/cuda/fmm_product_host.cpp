#include "fmm_host.h"
#include SOURCE

extern "C" void on_host(unsigned tiles, number *out, long long out_first, int out_stride,
                        const number *in, long long in_first, int in_stride, const number *matrices,
                        int inner, int columns, const unsigned *rows_out, const unsigned *begins,
                        const unsigned *matrix_of, const unsigned *rows_in, const number *scales) {
    for (unsigned across = 0; across < columns / SIDE; across++)
        launch_on_host(tiles, THREADS, [=] {
            blockIdx.y = across;
            products(out, out_first, out_stride, in, in_first, in_stride, matrices, inner, columns,
                     rows_out, begins, matrix_of, rows_in, scales);
        });
}
