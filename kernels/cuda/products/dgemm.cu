// The matrix product C = C + A B in double precision: kernels/cuda/products/dgemm_counts.py.
//
// All matrices are stored by columns, and padded to whole tiles. A block of DIM_M x DIM_N threads
// computes a tile of BLK_M x BLK_N of C. Its threads load stripes of BLK_K columns of A and rows of
// B into shared memory, arranged as M_A x N_A and M_B x N_B, and multiply from there. STEPS columns
// of A make one pass of the inner loop.
//
// SIMD 1: numbers are moved in pairs. Those of a stripe of A are rows, and a thread has pairs of
// rows of C where the number of its rows is even; those of a stripe of B are rows as well.

#define THREADS (DIM_M * DIM_N)
#define ROWS (BLK_M / DIM_M)
#define COLUMNS (BLK_N / DIM_N)
#define NUMBERS (1 + SIMD)

#if SIMD
typedef double2 moved;
#else
typedef double moved;
#endif

#if SIMD && ROWS % 2 == 0
#define ROW_NUMBERS 2
typedef double2 of_rows;
#else
#define ROW_NUMBERS 1
typedef double of_rows;
#endif

// What a thread loads of one column of A's stripe, and of NUMBERS rows of B's.
union column_of_a {
    of_rows moved[ROWS / ROW_NUMBERS];
    double number[ROWS];
};
union rows_of_b {
    moved column[COLUMNS];
    double number[COLUMNS * NUMBERS];
};

// Loads a stripe of `down` x `across`, whose columns are `leading` numbers apart; THREADS are
// arranged as `m` x `n`.
template <int down, int across, int m, int n>
__device__ __forceinline__ void load_stripe(double *stripe, const double *matrix,
                                            long long leading) {
    const int row = threadIdx.x % m * NUMBERS, column = threadIdx.x / m;
#pragma unroll
    for (int j = 0; j < across; j += n) {
#pragma unroll
        for (int i = 0; i < down; i += m * NUMBERS)
            *(moved *)(stripe + (column + j) * down + row + i) =
                __ldcg((const moved *)(matrix + (column + j) * leading + row + i));
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    add_product(double *c, const double *a, const double *b, long long rows, long long depth) {
    extern __shared__ double2 stripes[];
    double *const stripe_a = (double *)stripes, *const stripe_b = stripe_a + BLK_M * BLK_K;
    const int m = threadIdx.x % DIM_M * ROW_NUMBERS, n = threadIdx.x / DIM_M;
    const long long down = rows / BLK_M;
    const long long first_row = blockIdx.x % down * BLK_M, first_column = blockIdx.x / down * BLK_N;
    a += first_row;
    b += first_column * depth;
    c += (first_column + n) * rows + first_row + m;

    double sum[COLUMNS][ROWS];
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) {
#pragma unroll
        for (int i = 0; i < ROWS; i += ROW_NUMBERS)
            *(of_rows *)(sum[j] + i) = __ldcg((const of_rows *)(c + j * DIM_N * rows + i * DIM_M));
    }
#pragma unroll 1
    for (long long k = 0; k < depth; k += BLK_K) {
        load_stripe<BLK_M, BLK_K, M_A, N_A>(stripe_a, a, rows);
        load_stripe<BLK_K, BLK_N, M_B, N_B>(stripe_b, b, depth);
        a += BLK_K * rows;
        b += BLK_K;
        __syncthreads();
        const double *at_a = stripe_a + m, *at_b = stripe_b + n * BLK_K;
#pragma unroll 1
        for (int pass = 0; pass < BLK_K / STEPS; pass++) {
#pragma unroll
            for (int step = 0; step < STEPS; step += NUMBERS) {
                rows_of_b of_b;
#pragma unroll
                for (int j = 0; j < COLUMNS; j++)
                    of_b.column[j] = *(const moved *)(at_b + j * DIM_N * BLK_K + step);
#pragma unroll
                for (int number = 0; number < NUMBERS; number++) {
                    column_of_a of_a;
#pragma unroll
                    for (int i = 0; i < ROWS; i += ROW_NUMBERS)
                        of_a.moved[i / ROW_NUMBERS] =
                            *(const of_rows *)(at_a + (step + number) * BLK_M + i * DIM_M);
#pragma unroll
                    for (int j = 0; j < COLUMNS; j++) {
#pragma unroll
                        for (int i = 0; i < ROWS; i++)
                            sum[j][i] = __fma_rn(of_a.number[i], of_b.number[j * NUMBERS + number],
                                                 sum[j][i]);
                    }
                }
            }
            at_a += STEPS * BLK_M;
            at_b += STEPS;
        }
        __syncthreads();
    }
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) {
#pragma unroll
        for (int i = 0; i < ROWS; i += ROW_NUMBERS)
            *(of_rows *)(c + j * DIM_N * rows + i * DIM_M) = *(of_rows *)(sum[j] + i);
    }
}
