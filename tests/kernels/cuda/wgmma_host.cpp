// wgmma for the host. The tiles are read where their descriptors say, as in the PTX ISA, "Matrix
// Descriptor Format" and "Canonical Layouts" (K major, without swizzle): 8 rows of 16 bytes are
// without gaps, the leading offset leads to the next 16 bytes, the stride to the next 8 rows.
#include "tensor_host.h"
#define __align__(bytes) __attribute__((aligned(bytes)))

constexpr unsigned FIRST = 1024;  // where the tiles are in the shared memory
static const char *shared;
static inline unsigned shared_address(const void *at) {
    shared = (const char *)at - FIRST;
    return FIRST;
}
static inline void show_to_tensor_cores() {}
static inline void begin_products() {}
static inline void commit_products() {}
template <int> static inline void wait_for_products() {}

static unsigned tile_word(unsigned long long descriptor, int row, int word) {
    const unsigned start = (descriptor & 0x3fff) * 16;
    const unsigned leading = (descriptor >> 16 & 0x3fff) * 16;
    const unsigned stride = (descriptor >> 32 & 0x3fff) * 16;
    const char *at = shared + start + row / 8 * stride + row % 8 * 16 + word / 4 * leading;
    unsigned value;
    std::memcpy(&value, at + word % 4 * 4, 4);
    return value;
}
static void multiply_group(float (&d)[128], unsigned long long a, unsigned long long b) {
    const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
    for (int e = 0; e < 128; e++) {
        const int row = warp * 16 + lane / 4 + (e & 2 ? 8 : 0), column = e / 4 * 8 + lane % 4 * 2 + (e & 1);
        double total = d[e];
        for (int word = 0; word < 8; word++) {
            const unsigned x = tile_word(a, row, word), y = tile_word(b, column, word);
            for (int i = 0; i < ITEMS; i++) total += item(x, i) * item(y, i);
        }
        d[e] = (float)total;
    }
}
#include SOURCE

extern "C" void on_host(unsigned blocks, float *out, const uint4 *a, const uint4 *b,
                        long long chunks, int trips) {
    launch_on_host(blocks, THREADS, [=] { products(out, a, b, chunks, trips); });
}
