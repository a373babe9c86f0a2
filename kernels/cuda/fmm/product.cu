// Products of rows with matrices, gathered and added up: kernels/cuda/fmm/product.py.
//
// A block computes a tile of 32 rows and 32 columns of the result, entry by entry of its list: an
// entry is a matrix and 32 rows to multiply with it. Pieces of 32 x 32 numbers of both are staged
// in shared memory; a thread has 4 rows and 4 columns of the tile in registers.
//
// ADD: 1 to add to the existing result. DOUBLE: 0 single, 1 double.

#define SIDE 32
#define THREADS 64
#define PART 4
#define UNROLL 8
// Blocks on a processor: without this the compiler spills registers to fit more blocks.
#define RESIDENT 10

#if DOUBLE
typedef double number;
#define PAD 1
#define MULTIPLY(a, b) __dmul_rn(a, b)
#define MULTIPLY_ADD(a, b, c) __fma_rn(a, b, c)
#else
typedef float number;
#define PAD 2
#define MULTIPLY(a, b) __fmul_rn(a, b)
#define MULTIPLY_ADD(a, b, c) __fmaf_rn(a, b, c)
#endif

// out, in: numbers of row r and column c are at first + (r * width + c) * stride, where out is
// `columns` wide and in is `inner` wide. matrices: (inner, columns) each. rows_out: 32 of each tile.
// begins: the begin of each tile's entries, and the end of the last. matrix_of: of each entry.
// rows_in: 32 of each entry. scales: of each tile.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    products(number *out, long long out_first, int out_stride, const number *in,
             long long in_first, int in_stride, const number *matrices, int inner,
             int columns, const unsigned *rows_out, const unsigned *begins,
             const unsigned *matrix_of, const unsigned *rows_in, const number *scales) {
    __shared__ number left[SIDE][SIDE + PAD], right[SIDE][SIDE];
    const unsigned lane = threadIdx.x % SIDE, warp = threadIdx.x / SIDE;
    const unsigned row = threadIdx.x / (SIDE / PART) * PART, column = threadIdx.x % (SIDE / PART);
    const unsigned tile = blockIdx.x, first_column = blockIdx.y * SIDE;
    const unsigned end = __ldcg(begins + tile + 1);
    number total[PART][PART] = {};
#pragma unroll 1
    for (unsigned entry = __ldcg(begins + tile); entry < end; entry++) {
        const number *matrix =
            matrices + (long long)__ldcg(matrix_of + entry) * inner * columns + first_column;
#pragma unroll 1
        for (int k0 = 0; k0 < inner; k0 += SIDE) {
            __syncthreads();
#pragma unroll
            for (int i = 0; i < SIDE; i += THREADS / SIDE) {
                const long long from = __ldcg(rows_in + (long long)entry * SIDE + i + warp);
                left[i + warp][lane] =
                    __ldcg(in + in_first + (from * inner + k0 + lane) * in_stride);
                right[i + warp][lane] = __ldcg(matrix + (long long)(k0 + i + warp) * columns + lane);
            }
            __syncthreads();
#pragma unroll 1
            for (int pass = 0; pass < SIDE; pass += UNROLL) {
#pragma unroll
                for (int k = pass; k < pass + UNROLL; k++) {
                    number a[PART], b[PART];
#pragma unroll
                    for (int i = 0; i < PART; i++) {
                        a[i] = left[row + i][k];
                        b[i] = right[k][column + i * (SIDE / PART)];
                    }
#pragma unroll
                    for (int i = 0; i < PART; i++)
#pragma unroll
                        for (int j = 0; j < PART; j++)
                            total[i][j] = MULTIPLY_ADD(a[i], b[j], total[i][j]);
                }
            }
        }
    }
    const number scale = __ldcg(scales + tile);
#pragma unroll
    for (int i = 0; i < PART; i++) {
        const long long to = __ldcg(rows_out + tile * SIDE + row + i);
#pragma unroll
        for (int j = 0; j < PART; j++) {
            const unsigned c = first_column + column + j * (SIDE / PART);
            number *at = out + out_first + (to * columns + c) * out_stride;
#if ADD
            *at = MULTIPLY_ADD(scale, total[i][j], __ldcg(at));
#else
            *at = MULTIPLY(scale, total[i][j]);
#endif
        }
    }
}
