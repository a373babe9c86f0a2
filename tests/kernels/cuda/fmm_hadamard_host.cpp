#include "fmm_host.h"
#include SOURCE

extern "C" void on_host(unsigned tiles, vector *out, const vector *in, const vector *operators,
                        int first_operator, int frequencies, const unsigned *rows_out,
                        const unsigned *begins, const unsigned *operator_of,
                        const unsigned *rows_in) {
    for (unsigned slice = 0; slice < frequencies / PARTS / THREADS; slice++)
        launch_on_host(tiles, THREADS, [=] {
            blockIdx.y = slice;
            products_of_spectra(out, in, operators, first_operator, frequencies, rows_out, begins,
                                operator_of, rows_in);
        });
}
