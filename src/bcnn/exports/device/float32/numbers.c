/* The arithmetic: float32, one rounding an operation, in a fixed order, so that every machine makes the same bits. No product may be
 * fused with the sum that follows it, and no result may be kept in more bits than a float has. GCC fuses unless told otherwise, which
 * only its own pragma does; clang and others know C99's. Where a compiler is known to compute in floats that is all; elsewhere
 * every result passes through memory, which rounds it whatever the compiler thinks. */

#if defined(__FAST_MATH__)
#error "model.c computes in a fixed order: compile it without -ffast-math"
#endif
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("fp-contract=off")
#else
#pragma STDC FP_CONTRACT OFF
#endif
#if defined(__GNUC__) && defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ + 0 == 0
typedef const float result;
#else
typedef volatile float result;
#endif

static number plus(number a, number b) {
    result v = a + b;
    return v;
}

static number less(number a, number b) {
    result v = a - b;
    return v;
}

static number times(number a, number b) {
    result v = a * b;
    return v;
}

static number over(number a, number b) {
    result v = a / b;
    return v;
}

static parameter value(vec v, uint32_t i) { return numbers[v.at + i]; }
