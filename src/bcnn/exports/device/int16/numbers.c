/* The arithmetic: 16-bit numbers that saturate, sums of 32 bits that were bounded when the program was made. */

#if defined(__GNUC__) || defined(__clang__)
#define APART __attribute__((noinline)) /* a loop that needs all registers */
#else
#define APART
#endif

static int32_t down(int32_t v, unsigned n) { /* floor(v / 2^n), also where >> of a negative number is not that */
    return ((int32_t)-1 >> 1) == -1 ? v >> n : v >= 0 ? v >> n : ~(~v >> n);
}

static int32_t rounded(int32_t v, unsigned n) { return down(v + (int32_t)(((uint32_t)1 << n) >> 1), n); }

#ifdef __ARM_FEATURE_SAT
#include <arm_acle.h>
#define clamped(v) __ssat(v, 16)
#else
static int32_t clamped(int32_t v) { return v > 32767 ? 32767 : v < -32768 ? -32768 : v; }
#endif

static int16_t saturated(int32_t v) { return (int16_t)clamped(v); }

/* half is 2^14, but read from a table: a compiler that does not know it multiplies and adds in one instruction. */
static int32_t product(int32_t a, int32_t b, int32_t half) { return down(a * b + half, 15); }

static int16_t shifted(int32_t v, int up) {
    return saturated(up >= 0 ? v * ((int32_t)1 << up) : rounded(v, (unsigned)-up));
}

static parameter value(vec v, uint32_t i) { return (MIXED && v.at & WIDE ? numbers[(v.at & ~WIDE) + i] : bytes[v.at + i]) * v.step; }

static number plus(number a, number b) { return saturated((int32_t)a + b); }
