// mma.sync for the host. The lanes of a warp show each other their words; each then computes its
// four sums. Which lane holds which numbers is as in the PTX ISA, "Matrix Fragments for mma": a
// lane's group is lane / 4, its place in the group lane % 4.
#include <memory>
#include "tensor_host.h"

constexpr int WARPS = 8;
#if NUMBER == 0
typedef double held;
constexpr int A_HELD = 8, B_HELD = 4;
#else
typedef unsigned held;
constexpr int A_HELD = 4, B_HELD = 2;
#endif
static held a_of[WARPS][32][A_HELD], b_of[WARPS][32][B_HELD];
static std::unique_ptr<std::barrier<>> of_warp[WARPS];

template <class Sum>
static void multiply_tile(Sum (&d)[4], const held (&a)[A_HELD], const held (&b)[B_HELD]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    std::memcpy(a_of[warp][lane], a, sizeof a);
    std::memcpy(b_of[warp][lane], b, sizeof b);
    of_warp[warp]->arrive_and_wait();
    for (int e = 0; e < 4; e++) {
        const int row = lane / 4 + (e < 2 ? 0 : 8), column = lane % 4 * 2 + (e & 1);
        double total = d[e];
        for (int k = 0; k < 4 * B_HELD; k++) {  // words along k, of ITEMS numbers
            const held x = a_of[warp][row % 8 * 4 + k % 4][(row >= 8) + k / 4 * 2];
            const held y = b_of[warp][column * 4 + k % 4][k / 4];
            for (int i = 0; i < ITEMS; i++) total += item(x, i) * item(y, i);
        }
        d[e] = (Sum)total;
    }
    of_warp[warp]->arrive_and_wait();
}
#include SOURCE

extern "C" void on_host(unsigned blocks, sum *out, const word *a, const word *b, long long chunks,
                        int trips) {
    for (auto &one : of_warp) one = std::make_unique<std::barrier<>>(32);
    launch_on_host(blocks, THREADS, [=] { products(out, a, b, chunks, trips); });
}
