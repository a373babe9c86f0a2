// Matrix products of the tensor cores from shared memory (wgmma): kernels/cuda/microbench/mma.py.
//
// Every block adds A B to its sums D in each trip: D has M x N sums, A has K numbers a row and B K
// numbers a column. A group of four warps has 64 rows of D. A slice is the part of K in one
// instruction: 32 bytes of each row. In shared memory, 8 rows of 16 bytes are a core matrix of 128
// contiguous bytes; first come the core matrices of all rows, then those of the next 16 bytes of
// each row. There is no swizzle: every core matrix has each bank of the memory once.
//
// NUMBER: 1 half, 2 bf16, 3 fp8 (e4m3).

#define THREADS 256
#define GROUP 128
#define M 128
#define N 256
#define SLICES 4
#define ROW_BYTES (SLICES * 32)
#define CORE_BYTES 128
#define SUMS (64 * N / GROUP)

#ifdef __CUDACC__
#if NUMBER == 1
#define SHAPE "m64n256k16.f32.f16.f16"
#define TRANSPOSED ", 0, 0"
#elif NUMBER == 2
#define SHAPE "m64n256k16.f32.bf16.bf16"
#define TRANSPOSED ", 0, 0"
#else
#define SHAPE "m64n256k32.f32.e4m3.e4m3"
#define TRANSPOSED
#endif
#define TEN(t) \
    "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9, "
#define EIGHT_SUMS(i) \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
        "+f"(d[i + 6]), "+f"(d[i + 7])
#define SIXTEEN_SUMS(i) EIGHT_SUMS(i), EIGHT_SUMS(i + 8)

__device__ __forceinline__ unsigned shared_address(const void *at) {
    return (unsigned)__cvta_generic_to_shared(at);
}
// Makes the writes of threads to shared memory visible to the tensor cores.
__device__ __forceinline__ void show_to_tensor_cores() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// Required before the first instruction that uses these registers.
__device__ __forceinline__ void begin_products() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void commit_products() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int PENDING>
__device__ __forceinline__ void wait_for_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}
// D += A B. The last operands: add to D, the signs of A and B, transpose neither.
__device__ __forceinline__ void multiply_group(float (&d)[SUMS], unsigned long long a,
                                               unsigned long long b) {
    asm volatile("wgmma.mma_async.sync.aligned." SHAPE " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, "
                 TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) TEN(6) TEN(7) TEN(8) TEN(9) TEN(10) TEN(11)
                 "%120, %121, %122, %123, %124, %125, %126, %127}, %128, %129, 1, 1, 1" TRANSPOSED ";"
                 : SIXTEEN_SUMS(0), SIXTEEN_SUMS(16), SIXTEEN_SUMS(32), SIXTEEN_SUMS(48),
                   SIXTEEN_SUMS(64), SIXTEEN_SUMS(80), SIXTEEN_SUMS(96), SIXTEEN_SUMS(112)
                 : "l"(a), "l"(b));
}
#endif

// Copies rows of ROW_BYTES into core matrices.
__device__ __forceinline__ void lay_out(uint4 *to, const uint4 *from, int rows) {
    const int pieces = ROW_BYTES / 16;
    for (int i = threadIdx.x; i < rows * pieces; i += THREADS) {
        const int row = i / pieces, piece = i % pieces;
        to[piece * rows + row] = from[i];
    }
}

// The descriptor of a slice: its address, the distance between the two core matrices of 8 rows, and
// the distance to those of the next 8 rows; each in units of 16 bytes.
__device__ __forceinline__ unsigned long long descriptor(unsigned address, int rows, int slice) {
    const unsigned long long along = rows * 16, down = CORE_BYTES;
    const unsigned long long first = address + slice * 2 * along;
    return first >> 4 | along >> 4 << 16 | down >> 4 << 32;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    products(float *out, const uint4 *a, const uint4 *b, long long chunks, int trips) {
    __shared__ __align__(128) uint4 tiles[(M + N) * ROW_BYTES / 16];
    const int group = threadIdx.x / GROUP, lane = threadIdx.x % 32, warp = threadIdx.x % GROUP / 32;
    const unsigned a_address = shared_address(tiles) + group * 64 * ROW_BYTES;
    const unsigned b_address = shared_address(tiles) + M * ROW_BYTES;
    for (int g = 0; g < M / 64; g++)
        lay_out(tiles + g * 64 * ROW_BYTES / 16, a + g * 64 * ROW_BYTES / 16, 64);
    lay_out(tiles + M * ROW_BYTES / 16, b, N);
    show_to_tensor_cores();
    __syncthreads();
    float d[SUMS];
#pragma unroll
    for (int e = 0; e < SUMS; e++) d[e] = 0;
    begin_products();
#pragma unroll 1
    for (long long chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
#pragma unroll 1
        for (int trip = 0; trip < trips; trip++) {
#pragma unroll
            for (int s = 0; s < SLICES; s++)
                multiply_group(d, descriptor(a_address, 64, s), descriptor(b_address, N, s));
            commit_products();
            wait_for_products<1>();
        }
    }
    wait_for_products<0>();
    const int row = group * 64 + warp * 16 + lane / 4;
    float *of_block = out + (long long)blockIdx.x * M * N;
#pragma unroll
    for (int e = 0; e < SUMS; e++)
        of_block[(row + e / 2 % 2 * 8) * N + e / 4 * 8 + lane % 4 * 2 + e % 2] = d[e];
}
