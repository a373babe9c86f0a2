// The matrix product for the host. After a block's shared memory come numbers that no thread may
// write.
#include "../host.h"
#undef __shared__
#define __shared__

#define GUARD 256
extern "C" {
double2 stripes[(SHARED_NUMBERS + GUARD) / 2];
}

#if MMA_K
#include <deque>
#include <memory>
#include <utility>

// Asynchronous copies: numbers arrive when their thread waits for their group, and not before.
typedef std::vector<std::pair<double *, const double *>> copies;
static thread_local copies begun;
static thread_local std::deque<copies> groups;
static thread_local long long copied, loaded;
static inline void copy_pair(double *to, const double *from) {
    begun.emplace_back(to, from);
    copied += 2;
}
static inline void end_group_of_copies() {
    groups.push_back(begun);
    begun.clear();
}
template <int fewer> static inline void wait_for_copies() {
    for (; groups.size() > fewer; groups.pop_front())
        for (auto [to, from] : groups.front()) std::memcpy(to, from, 16);
}

// Loads of shared memory, with the banks of 8 bytes that each thread asks for.
static thread_local std::vector<unsigned char> asked;
static inline double load_shared(const double *from) {
    asked.push_back((from - (double *)stripes) % 16);
    loaded++;
    return *from;
}

// mma.sync of doubles: the lanes of a warp show each other their numbers, and each computes its
// sums. Which lane holds which is as in the PTX ISA, "Matrix Fragments for mma.m8n8k4" and
// "mma.m16n8k4, m16n8k8, m16n8k16 with .f64": of lane l, group = l / 4 and place = l % 4,
// A's number i is row group + 8 (i % 2), column place + 4 (i / 2), of 8 rows just group and place;
// B's number i is row place + 4 i, column group;
// C's number i is row group + 8 (i / 2), column 2 place + i % 2.
constexpr int LANES = 32, WARPS = DIM_M * DIM_N / LANES;
static double tile_a[WARPS][MMA_M][MMA_K], tile_b[WARPS][MMA_K][8];
static std::unique_ptr<std::barrier<>> of_warp[WARPS];
template <int sums, int of_a, int of_b>
static void multiply_tile(double (&d)[sums], const double (&a)[of_a], const double (&b)[of_b]) {
    static_assert(sums * 32 == MMA_M * 8 && of_a * 32 == MMA_M * MMA_K && of_b * 4 == MMA_K);
    const int warp = threadIdx.x / LANES, group = threadIdx.x % LANES / 4, place = threadIdx.x % 4;
    for (int i = 0; i < of_a; i++) {
        const bool is_tall = MMA_M == 16;
        tile_a[warp][group + (is_tall ? i % 2 * 8 : 0)][place + (is_tall ? i / 2 : i) * 4] = a[i];
    }
    for (int i = 0; i < of_b; i++) tile_b[warp][place + 4 * i][group] = b[i];
    of_warp[warp]->arrive_and_wait();
    for (int i = 0; i < sums; i++)
        for (int k = 0; k < MMA_K; k++)
            d[i] = std::fma(tile_a[warp][group + i / 2 * 8][k],
                            tile_b[warp][k][2 * place + i % 2], d[i]);
    of_warp[warp]->arrive_and_wait();
}
static std::vector<unsigned char> asked_by[LANES * WARPS];
static long long copied_by[LANES * WARPS], loaded_by[LANES * WARPS];

// Of the last block: half warps that ask for two numbers of one bank at a time.
extern "C" int bank_conflicts() {
    int conflicts = 0;
    for (int half = 0; half < 2 * WARPS; half++)
        for (size_t request = 0; request < asked_by[0].size(); request++) {
            unsigned banks = 0;
            for (int lane = 0; lane < 16; lane++)
                banks |= 1u << asked_by[half * 16 + lane].at(request);
            conflicts += banks != 0xffff;
        }
    return conflicts;
}
extern "C" long long moved_numbers(bool by_copies) {
    long long total = 0;
    for (auto each : by_copies ? copied_by : loaded_by) total += each;
    return total;
}
#endif
#include SOURCE

// Adds A B to C. Returns how many numbers of shared memory were not written, but for the padding of
// tensor cores, plus how many after it were.
extern "C" int on_host(unsigned blocks, double *c, const double *a, const double *b, long long rows,
                       long long depth) {
    double *const numbers = (double *)stripes;
    for (int i = 0; i < SHARED_NUMBERS + GUARD - 1; i++) numbers[i] = NAN;
#if MMA_K
    for (auto &one : of_warp) one = std::make_unique<std::barrier<>>(LANES);
    std::memset(copied_by, 0, sizeof copied_by);
    std::memset(loaded_by, 0, sizeof loaded_by);
#endif
    launch_on_host(blocks, THREADS, [=] {
        add_product(c, a, b, rows, depth);
#if MMA_K
        copied_by[threadIdx.x] += copied;
        loaded_by[threadIdx.x] += loaded;
        asked_by[threadIdx.x] = asked;
#endif
    });
    int wrong = 0;
    for (int i = 0; i < SHARED_NUMBERS + GUARD - 1; i++) {
        bool is_written = i < SHARED_NUMBERS;
#if MMA_K
        if (depth / BLK_K < STAGES) is_written &= i < depth / BLK_K * STAGE;
        const int place = i % STAGE, of_b = place - STRIPE_A;
        is_written &= of_b < 0 ? place % LEADING_A < BLK_M : of_b % LEADING_B < BLK_K;
#endif
        wrong += std::isnan(numbers[i]) == is_written;
    }
    return wrong;
}
