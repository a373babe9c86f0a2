/* The loops of kernels/fmm/phases/pair_loops.py in C with intrinsics, for benchmarks/fmm_pairs.py.
   Compiled once for each combination of
     NUMBER   32 or 64, the bits of a number
     STEPS    Newton steps after the processor's estimate of 1 / sqrt(x)
     BLOCK    vectors of targets (one way) or targets (both ways) that stay in registers
   with AVX-512 where the processor has it, and with AVX2 elsewhere. */

#include <immintrin.h>

#if defined(__AVX512F__) && NUMBER == 32
typedef float number;
typedef __m512 vector;
#define LANES 16
#define OP(name) _mm512_##name##_ps
#define ESTIMATE(x) _mm512_rsqrt14_ps(x)
#elif defined(__AVX512F__)
typedef double number;
typedef __m512d vector;
#define LANES 8
#define OP(name) _mm512_##name##_pd
#define ESTIMATE(x) _mm512_rsqrt14_pd(x)
#elif defined(__AVX2__) && defined(__FMA__) && NUMBER == 32
typedef float number;
typedef __m256 vector;
#define LANES 8
#define OP(name) _mm256_##name##_ps
#define ESTIMATE(x) _mm256_rsqrt_ps(x)
#elif defined(__AVX2__) && defined(__FMA__)
typedef double number;
typedef __m256d vector;
#define LANES 4
#define OP(name) _mm256_##name##_pd
#define ESTIMATE(x) _mm256_cvtps_pd(_mm_rsqrt_ps(_mm256_cvtpd_ps(x)))
#else
#error "neither AVX-512 nor AVX2 with FMA"
#endif

#define INLINE static inline __attribute__((always_inline))
#define UNROLLED _Pragma("GCC unroll 16")

INLINE vector squared(vector dx, vector dy, vector dz) {
  return OP(fmadd)(dx, dx, OP(fmadd)(dy, dy, OP(mul)(dz, dz)));
}

/* 1 / r; 2 / r with Newton steps, for the last one's 1 / 2 is left out. */
INLINE vector inverse(vector r2) {
  vector y = ESTIMATE(r2);
  UNROLLED for (int step = 0; step < STEPS; step++) {
    vector factor = OP(fnmadd)(r2, OP(mul)(y, y), OP(set1)(3));
    y = OP(mul)(step == STEPS - 1 ? y : OP(mul)(OP(set1)((number)0.5), y), factor);
  }
  return y;
}

/* Rows of s and t, `room` and `room_t` numbers apart: x, y, z, charge. */
INLINE void block(const int count, const number *s, long room, long n, const number *t,
                  long room_t, number *sum) {
  vector x[BLOCK], y[BLOCK], z[BLOCK], total[BLOCK];
  UNROLLED for (int b = 0; b < count; b++) {
    x[b] = OP(loadu)(t + b * LANES);
    y[b] = OP(loadu)(t + room_t + b * LANES);
    z[b] = OP(loadu)(t + 2 * room_t + b * LANES);
    total[b] = OP(loadu)(sum + b * LANES);
  }
  for (long i = 0; i < n; i++) {
    vector sx = OP(set1)(s[i]), sy = OP(set1)(s[room + i]), sz = OP(set1)(s[2 * room + i]);
    vector charge = OP(set1)(s[3 * room + i]);
    UNROLLED for (int b = 0; b < count; b++) {
      vector r2 = squared(OP(sub)(x[b], sx), OP(sub)(y[b], sy), OP(sub)(z[b], sz));
      total[b] = OP(fmadd)(inverse(r2), charge, total[b]);
    }
  }
  UNROLLED for (int b = 0; b < count; b++) OP(storeu)(sum + b * LANES, total[b]);
}

void one_way(long repeats, const number *s, long room, long n, const number *t, long room_t,
             number *sum, long targets) {
  for (long r = 0; r < repeats; r++) {
    long at = 0;
    for (; at + (BLOCK - 1) * LANES < targets; at += BLOCK * LANES)
      block(BLOCK, s, room, n, t + at, room_t, sum + at);
    for (; at < targets; at += LANES) block(1, s, room, n, t + at, room_t, sum + at);
  }
}

INLINE number all_lanes(vector a) {
  number lane[LANES], total = 0;
  OP(storeu)(lane, a);
  for (int i = 0; i < LANES; i++) total += lane[i];
  return total;
}

INLINE void tile(const int count, const number *s, long room, long n, number *sum_s,
                 const number *t, long room_t, number *sum_t, number *met) {
  vector x[BLOCK], y[BLOCK], z[BLOCK], charge[BLOCK], total[BLOCK], least = OP(loadu)(met);
  UNROLLED for (int b = 0; b < count; b++) {
    x[b] = OP(set1)(t[b]);
    y[b] = OP(set1)(t[room_t + b]);
    z[b] = OP(set1)(t[2 * room_t + b]);
    charge[b] = OP(set1)(t[3 * room_t + b]);
    total[b] = OP(set1)(0);
  }
  for (long i = 0; i < n; i += LANES) {
    vector sx = OP(loadu)(s + i), sy = OP(loadu)(s + room + i), sz = OP(loadu)(s + 2 * room + i);
    vector source = OP(loadu)(s + 3 * room + i), back = OP(loadu)(sum_s + i);
    UNROLLED for (int b = 0; b < count; b++) {
      vector r2 = squared(OP(sub)(x[b], sx), OP(sub)(y[b], sy), OP(sub)(z[b], sz));
      vector value = inverse(r2);
      total[b] = OP(fmadd)(value, source, total[b]);
      back = OP(fmadd)(value, charge[b], back);
      least = OP(min)(r2, least);
    }
    OP(storeu)(sum_s + i, back);
  }
  OP(storeu)(met, least);
  UNROLLED for (int b = 0; b < count; b++) sum_t[b] += all_lanes(total[b]);
}

void both_ways(long repeats, const number *s, long room, long n, number *sum_s, const number *t,
               long room_t, number *sum_t, long targets, number *met) {
  for (long r = 0; r < repeats; r++) {
    long at = 0;
    for (; at + BLOCK <= targets; at += BLOCK)
      tile(BLOCK, s, room, n, sum_s, t + at, room_t, sum_t + at, met);
    for (; at < targets; at++) tile(1, s, room, n, sum_s, t + at, room_t, sum_t + at, met);
  }
}
