// Products of spectra, frequency by frequency, gathered and added up: kernels/cuda/fmm/hadamard.py.
//
// A block computes THREADS frequencies of CELLS rows of the result, of one entry of its list after
// the other: an entry is the spectrum of an operator and CELLS rows to multiply with it. A thread
// has one frequency of all rows in registers. The numbers of the next entry's rows are loaded while
// this entry is computed.

#define THREADS 64
// Of blocks on a processor: without it the compiler saves registers by waiting for one load before
// it issues the next.
#define RESIDENT 12

// out, in: rows of `frequencies` complex numbers. operators: rows of the same length, of which
// number 0 is row `first_operator`. rows_out: CELLS of each tile. begins: where each tile's entries
// begin, and the end of the last. operator_of: of each entry. rows_in: CELLS of each entry.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    products_of_spectra(double2 *out, const double2 *in, const double2 *operators,
                        int first_operator, int frequencies, const unsigned *rows_out,
                        const unsigned *begins, const unsigned *operator_of,
                        const unsigned *rows_in) {
    const unsigned tile = blockIdx.x;
    const long long width = frequencies, frequency = blockIdx.y * THREADS + threadIdx.x;
    const unsigned end = __ldcg(begins + tile + 1);
    operators += first_operator * width + frequency;
    in += frequency;
    double2 total[CELLS] = {};
    unsigned entry = __ldcg(begins + tile), number = 0, row[CELLS] = {};
    if (entry < end) {
        number = __ldcg(operator_of + entry);
#pragma unroll
        for (int c = 0; c < CELLS; c++) row[c] = __ldcg(rows_in + (long long)entry * CELLS + c);
    }
#pragma unroll 1
    for (; entry < end; entry++) {
        const double2 factor = __ldcg(operators + number * width);
        double2 x[CELLS];
#pragma unroll
        for (int c = 0; c < CELLS; c++) x[c] = __ldcg(in + row[c] * width);
        if (entry + 1 < end) {
            number = __ldcg(operator_of + entry + 1);
#pragma unroll
            for (int c = 0; c < CELLS; c++)
                row[c] = __ldcg(rows_in + (entry + 1LL) * CELLS + c);
        }
#pragma unroll
        for (int c = 0; c < CELLS; c++) {
            total[c].x = __fma_rn(factor.x, x[c].x, total[c].x);
            total[c].y = __fma_rn(factor.x, x[c].y, total[c].y);
            total[c].x = __fma_rn(-factor.y, x[c].y, total[c].x);
            total[c].y = __fma_rn(factor.y, x[c].x, total[c].y);
        }
    }
#pragma unroll
    for (int c = 0; c < CELLS; c++)
        out[__ldcg(rows_out + tile * CELLS + c) * width + frequency] = total[c];
}
