// The matrix product C = C + A B in double precision: kernels/cuda/products/dgemm.py.
//
// All matrices are stored by columns, and padded to whole tiles. A block of DIM_M x DIM_N threads
// computes a tile of BLK_M x BLK_N of C. Its threads load stripes of BLK_K columns of A and rows of
// B into shared memory, arranged as M_A x N_A and M_B x N_B, and multiply from there. Blocks take
// the tiles of C column by column; if BAND is not 0, in bands of BAND rows of tiles.

#define THREADS (DIM_M * DIM_N)

// The first row and column of this block's tile.
__device__ __forceinline__ void find_tile(long long rows, long long &row, long long &column) {
    const long long down = rows / BLK_M;
#if BAND
    const long long across = gridDim.x / down, first = blockIdx.x / (BAND * across) * BAND;
    const long long height = down - first < BAND ? down - first : BAND;
    const long long place = blockIdx.x - first * across;
#else
    const long long first = 0, height = down, place = blockIdx.x;
#endif
    row = (first + place % height) * BLK_M;
    column = place / height * BLK_N;
}

#if MMA_K
// By tensor cores. A warp computes WARP_M x WARP_N sums, as ROWS x COLUMNS products of MMA_M x 8 in
// slices of MMA_K. PTX assigns the numbers to the lanes: with g = lane / 4 and t = lane % 4, from A
// columns t + 4 i of rows g and, if MMA_M is 16, g + 8; from B rows t + 4 i of column g; from C
// columns 2 t and 2 t + 1 of the rows of A.
//
// STAGES stripes are in shared memory: one is multiplied while the others are copied. Four numbers
// after each column keep the lanes of a load in different banks: in units of 8 bytes, a column
// begins 4 or 12 banks of 16 after the previous one.

#define WARPS_M (DIM_M / 8)
#define WARP_M (BLK_M / WARPS_M)
#define WARP_N (BLK_N / (DIM_N / 4))
#define ROWS (WARP_M / MMA_M)
#define COLUMNS (WARP_N / 8)
#define HALVES (MMA_M / 8)
#define A_NUMBERS (HALVES * MMA_K / 4)
#define B_NUMBERS (MMA_K / 4)
#define SLICES (BLK_K / MMA_K)
#define SUMS (HALVES * 2)
#define LEADING_A (BLK_M + 4)
#define LEADING_B (BLK_K + 4)
#define STRIPE_A (BLK_K * LEADING_A)
#define STAGE (STRIPE_A + BLK_N * LEADING_B)

#ifdef __CUDACC__
// Copies two numbers to shared memory, without registers or L1.
__device__ __forceinline__ void copy_pair(double *to, const double *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                     (unsigned)__cvta_generic_to_shared(to)),
                 "l"(from)
                 : "memory");
}
__device__ __forceinline__ void end_group_of_copies() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits for all groups of copies of this thread except the last `fewer`.
template <int fewer> __device__ __forceinline__ void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(fewer) : "memory");
}
__device__ __forceinline__ double load_shared(const double *from) { return *from; }
__device__ __forceinline__ void multiply_tile(double (&d)[SUMS], const double (&a)[A_NUMBERS],
                                              const double (&b)[B_NUMBERS]) {
#if MMA_M == 8
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+d"(d[0]), "+d"(d[1])
        : "d"(a[0]), "d"(b[0]));
#elif MMA_K == 4
    asm("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
        "{%0, %1, %2, %3};"
        : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
        : "d"(a[0]), "d"(a[1]), "d"(b[0]));
#elif MMA_K == 8
    asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
        : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
#else
    asm("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7, %8, %9, %10, %11}, {%12, %13, %14, %15}, {%0, %1, %2, %3};"
        : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
        : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]),
          "d"(b[0]), "d"(b[1]), "d"(b[2]), "d"(b[3]));
#endif
}
#endif

// Starts to copy a stripe of `down` x `across`, whose columns are `leading` numbers apart, in
// shared memory `padded` numbers; THREADS are arranged as `m` x `n`.
template <int down, int across, int m, int n, int padded>
__device__ __forceinline__ void copy_stripe(double *stripe, const double *matrix,
                                            long long leading) {
    const int row = threadIdx.x % m * 2, column = threadIdx.x / m;
    stripe += column * padded + row;
    matrix += column * leading + row;
#pragma unroll
    for (int j = 0; j < across; j += n) {
#pragma unroll
        for (int i = 0; i < down; i += m * 2)
            copy_pair(stripe + j * padded + i, matrix + j * leading + i);
    }
}

// The numbers of a lane in a slice of A and of B, the first of which are at `of_a` and `of_b`.
struct Slice {
    double a[ROWS][A_NUMBERS], b[COLUMNS][B_NUMBERS];

    __device__ __forceinline__ void load(const double *of_a, const double *of_b) {
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
#pragma unroll
            for (int e = 0; e < A_NUMBERS; e++)
                a[i][e] = load_shared(of_a + e / HALVES * 4 * LEADING_A + i * MMA_M +
                                      e % HALVES * 8);
        }
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) {
#pragma unroll
            for (int e = 0; e < B_NUMBERS; e++)
                b[j][e] = load_shared(of_b + j * 8 * LEADING_B + e * 4);
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    add_product(double *c, const double *a, const double *b, long long rows, long long depth) {
    extern __shared__ double2 stripes[];
    double *const shared = (double *)stripes;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const int warp_row = warp % WARPS_M * WARP_M + g, warp_column = warp / WARPS_M * WARP_N;
    long long first_row, first_column;
    find_tile(rows, first_row, first_column);
    a += first_row;
    b += first_column * depth;
    c += (first_column + warp_column + 2 * t) * rows + first_row + warp_row;
    const double *const of_a = shared + t * LEADING_A + warp_row;
    const double *const of_b = shared + STRIPE_A + (warp_column + g) * LEADING_B + t;

    const int steps = depth / BLK_K;
    int copied = 0, writing = 0, reading = 0;
    auto copy_next = [&] {
        if (copied < steps) {
            copy_stripe<BLK_M, BLK_K, M_A, N_A, LEADING_A>(shared + writing, a, rows);
            copy_stripe<BLK_K, BLK_N, M_B, N_B, LEADING_B>(shared + writing + STRIPE_A, b, depth);
            a += BLK_K * rows;
            b += BLK_K;
            copied++;
            writing = writing == (STAGES - 1) * STAGE ? 0 : writing + STAGE;
        }
        end_group_of_copies();
    };
#pragma unroll
    for (int stage = 0; stage < STAGES - 1; stage++) copy_next();

    double sum[COLUMNS][ROWS][SUMS];
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) {
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
#pragma unroll
            for (int e = 0; e < SUMS; e++)
                sum[j][i][e] = __ldcg(c + (j * 8 + e % 2) * rows + i * MMA_M + e / 2 * 8);
        }
    }
    Slice slices[2];
    wait_for_copies<STAGES - 2>();
    __syncthreads();
    slices[0].load(of_a, of_b);
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
#pragma unroll
        for (int slice = 0; slice < SLICES; slice++) {
            // The next slice is loaded while this one is multiplied.
            const int next = (slice + 1) % SLICES;
            if (next == 0) {
                reading = reading == (STAGES - 1) * STAGE ? 0 : reading + STAGE;
                if (step + 1 < steps) {
                    wait_for_copies<STAGES - 2>();
                    __syncthreads();
                    slices[0].load(of_a + reading, of_b + reading);
                }
            } else {
                slices[next % 2].load(of_a + reading + next * MMA_K * LEADING_A,
                                      of_b + reading + next * MMA_K);
            }
            // Overwrites the previous stripe, which all threads have loaded.
            if (slice == 0) copy_next();
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) {
#pragma unroll
                for (int i = 0; i < ROWS; i++)
                    multiply_tile(sum[j][i], slices[slice % 2].a[i], slices[slice % 2].b[j]);
            }
        }
    }
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) {
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
#pragma unroll
            for (int e = 0; e < SUMS; e++)
                c[(j * 8 + e % 2) * rows + i * MMA_M + e / 2 * 8] = sum[j][i][e];
        }
    }
}
#else
// By multiply-adds of each thread. One pass of the inner loop has STEPS columns of A. SIMD 1:
// numbers move in pairs. In a stripe of A pairs are rows, and a thread has pairs of rows of C if
// the number of its rows is even; in a stripe of B pairs are rows too.

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

// The numbers that a thread loads from one column of A's stripe, and from NUMBERS rows of B's.
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
    long long first_row, first_column;
    find_tile(rows, first_row, first_column);
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
#endif
