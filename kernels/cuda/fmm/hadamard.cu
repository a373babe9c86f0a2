// Products of spectra, frequency by frequency, gathered and added up: kernels/cuda/fmm/hadamard.py.
//
// A block computes THREADS vectors of CELLS rows of the result, entry by entry of its list: an
// entry is the spectrum of an operator and CELLS rows to multiply with it. A thread has 16 bytes of
// each row in registers. The indices of the next entry's rows are loaded while this entry is
// computed.

#define THREADS 64
// Blocks on a processor: without this the compiler saves registers by waiting for each load before
// it issues the next.
#define RESIDENT 12

#if DOUBLE
typedef double2 vector;
#define PARTS 1
#define MULTIPLY_ADD(a, b, c) __fma_rn(a, b, c)
#else
typedef float4 vector;
#define PARTS 2
#define MULTIPLY_ADD(a, b, c) __fmaf_rn(a, b, c)
#endif

__device__ __forceinline__ void add_product(vector &total, const vector &a, const vector &b) {
    total.x = MULTIPLY_ADD(a.x, b.x, total.x);
    total.y = MULTIPLY_ADD(a.x, b.y, total.y);
    total.x = MULTIPLY_ADD(-a.y, b.y, total.x);
    total.y = MULTIPLY_ADD(a.y, b.x, total.y);
#if PARTS == 2
    total.z = MULTIPLY_ADD(a.z, b.z, total.z);
    total.w = MULTIPLY_ADD(a.z, b.w, total.w);
    total.z = MULTIPLY_ADD(-a.w, b.w, total.z);
    total.w = MULTIPLY_ADD(a.w, b.z, total.w);
#endif
}

// DOUBLE: 0 single, 1 double; a vector has two complex numbers or one.
//
// out, in: rows of `frequencies` complex numbers. operators: rows of the same length; row
// `first_operator` is operator 0. rows_out: CELLS of each tile. begins: the begin of each tile's
// entries, and the end of the last. operator_of: of each entry. rows_in: CELLS of each entry.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    products_of_spectra(vector *out, const vector *in, const vector *operators,
                        int first_operator, int frequencies, const unsigned *rows_out,
                        const unsigned *begins, const unsigned *operator_of,
                        const unsigned *rows_in) {
    const unsigned tile = blockIdx.x;
    const long long width = frequencies / PARTS, at = blockIdx.y * THREADS + threadIdx.x;
    const unsigned end = __ldcg(begins + tile + 1);
    operators += first_operator * width + at;
    in += at;
    vector total[CELLS] = {};
    unsigned entry = __ldcg(begins + tile), number = 0, row[CELLS] = {};
    if (entry < end) {
        number = __ldcg(operator_of + entry);
#pragma unroll
        for (int c = 0; c < CELLS; c++) row[c] = __ldcg(rows_in + (long long)entry * CELLS + c);
    }
#pragma unroll 1
    for (; entry < end; entry++) {
        const vector factor = __ldcg(operators + number * width);
        vector x[CELLS];
#pragma unroll
        for (int c = 0; c < CELLS; c++) x[c] = __ldcg(in + row[c] * width);
        if (entry + 1 < end) {
            number = __ldcg(operator_of + entry + 1);
#pragma unroll
            for (int c = 0; c < CELLS; c++)
                row[c] = __ldcg(rows_in + (entry + 1LL) * CELLS + c);
        }
#pragma unroll
        for (int c = 0; c < CELLS; c++) add_product(total[c], factor, x[c]);
    }
#pragma unroll
    for (int c = 0; c < CELLS; c++)
        out[__ldcg(rows_out + tile * CELLS + c) * width + at] = total[c];
}
