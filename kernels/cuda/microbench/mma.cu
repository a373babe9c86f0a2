// Matrix products of the tensor cores from registers (mma.sync): kernels/cuda/microbench/mma.py.
//
// Every block adds A B to its sums D in each trip: D has M x N sums, A has K numbers a row and B K
// numbers a column. A warp has 16 ROWS rows of D, as tiles of 16 x 8 sums. A slice is the part of K
// in one instruction. Lane l of a warp holds the numbers that PTX assigns to it: from a tile's A
// words l % 4 + 4 i of rows l / 4 and l / 4 + 8, from B the same words of column l / 4, and from D
// columns 2 (l % 4) and the next of rows l / 4 and l / 4 + 8.
//
// NUMBER: 0 double, 1 half, 2 bf16, 3 fp8 (e4m3).

#define THREADS 256
#define ROWS 2
#define SLICES 2

#if NUMBER == 0
typedef double word;
typedef double sum;
#define COLUMNS 2
#define SLICE_WORDS 16
#else
typedef unsigned word;
typedef float sum;
#define COLUMNS 4
#define SLICE_WORDS 8
#endif
#define A_WORDS (SLICE_WORDS / 2)
#define B_WORDS (SLICE_WORDS / 4)

#ifdef __CUDACC__
#if NUMBER == 0 && __CUDA_ARCH__ < 900
// Eight products of 8 x 8 x 4 if the architecture has no larger ones.
__device__ __forceinline__ void multiply_tile(sum (&d)[4], const word (&a)[A_WORDS],
                                              const word (&b)[B_WORDS]) {
#pragma unroll
    for (int i = 0; i < A_WORDS; i++) {
        sum *half = d + i % 2 * 2;
        asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
            : "+d"(half[0]), "+d"(half[1])
            : "d"(a[i]), "d"(b[i / 2]));
    }
}
#elif NUMBER == 0
__device__ __forceinline__ void multiply_tile(sum (&d)[4], const word (&a)[A_WORDS],
                                              const word (&b)[B_WORDS]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7, %8, %9, %10, %11}, {%12, %13, %14, %15}, {%0, %1, %2, %3};"
        : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
        : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]),
          "d"(b[0]), "d"(b[1]), "d"(b[2]), "d"(b[3]));
}
#else
#if NUMBER == 1
#define SHAPE "m16n8k16.row.col.f32.f16.f16.f32"
#elif NUMBER == 2
#define SHAPE "m16n8k16.row.col.f32.bf16.bf16.f32"
#else
#define SHAPE "m16n8k32.row.col.f32.e4m3.e4m3.f32"
#endif
__device__ __forceinline__ void multiply_tile(sum (&d)[4], const word (&a)[A_WORDS],
                                              const word (&b)[B_WORDS]) {
    asm("mma.sync.aligned." SHAPE
        " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif
#endif

extern "C" __global__ void __launch_bounds__(THREADS)
    products(sum *out, const word *a, const word *b, long long chunks, int trips) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int row = warp * ROWS * 16 + lane / 4, row_words = SLICES * SLICE_WORDS;
    word a_tile[SLICES][ROWS][A_WORDS], b_tile[SLICES][COLUMNS][B_WORDS];
    sum d[ROWS][COLUMNS][4];
#pragma unroll
    for (int s = 0; s < SLICES; s++) {
        const int first = s * SLICE_WORDS + lane % 4;
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int w = 0; w < A_WORDS; w++)
                a_tile[s][i][w] = a[(row + i * 16 + w % 2 * 8) * row_words + first + w / 2 * 4];
#pragma unroll
        for (int j = 0; j < COLUMNS; j++)
#pragma unroll
            for (int w = 0; w < B_WORDS; w++)
                b_tile[s][j][w] = b[(j * 8 + lane / 4) * row_words + first + w * 4];
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < COLUMNS; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) d[i][j][e] = 0;
#pragma unroll 1
    for (long long chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
#pragma unroll 1
        for (int trip = 0; trip < trips; trip++) {
#pragma unroll
            for (int s = 0; s < SLICES; s++)
#pragma unroll
                for (int i = 0; i < ROWS; i++)
#pragma unroll
                    for (int j = 0; j < COLUMNS; j++)
                        multiply_tile(d[i][j], a_tile[s][i], b_tile[s][j]);
        }
    }
    sum *of_block = out + (long long)blockIdx.x * THREADS / 32 * ROWS * 16 * COLUMNS * 8;
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < COLUMNS; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                of_block[(row + i * 16 + e / 2 * 8) * COLUMNS * 8 + j * 8 + lane % 4 * 2 + e % 2] =
                    d[i][j][e];
}
