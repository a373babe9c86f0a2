#include "host.h"
#include SOURCE

extern "C" void on_host(unsigned blocks, unsigned *out, const uint4 *words, long long n_vectors,
                        long long chunks, int trips) {
    launch_on_host(blocks, THREADS, [=] { sums(out, words, n_vectors, chunks, trips); });
}
