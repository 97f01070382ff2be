// 16-bit numbers without intrinsics: what each of these operations means stands here. `R`, rounded products, and
// saturating sums are the two that bcnn/program/ops/arithmetic.py is built on.
#pragma once

constexpr int short_lanes = 16;
struct Shorts {
    int16_t v[short_lanes];
};
#define BCNN_EACH_LANE(EXPRESSION)                                      \
    for (int i = 0; i < short_lanes; i++) a.v[i] = int16_t(EXPRESSION); \
    return a

BCNN_INLINE Shorts load(const int16_t* p) {
    Shorts a;
    BCNN_EACH_LANE(p[i]);
}
BCNN_INLINE void store(int16_t* p, Shorts a) {
    for (int i = 0; i < short_lanes; i++) p[i] = a.v[i];
}
BCNN_INLINE Shorts broadcast_short(int value) {
    Shorts a;
    BCNN_EACH_LANE(value);
}
BCNN_INLINE Shorts product(Shorts a, Shorts b) { BCNN_EACH_LANE((int(a.v[i]) * b.v[i] + (1 << 14)) >> 15); }
BCNN_INLINE Shorts plus(Shorts a, Shorts b) {  // saturating
    BCNN_EACH_LANE(a.v[i] + b.v[i] > 32767 ? 32767 : a.v[i] + b.v[i] < -32768 ? -32768 : a.v[i] + b.v[i]);
}
BCNN_INLINE Shorts add(Shorts a, Shorts b) { BCNN_EACH_LANE(a.v[i] + b.v[i]); }  // wraps around, as `subtract`
BCNN_INLINE Shorts subtract(Shorts a, Shorts b) { BCNN_EACH_LANE(a.v[i] - b.v[i]); }
BCNN_INLINE Shorts smaller(Shorts a, Shorts b) { BCNN_EACH_LANE(a.v[i] < b.v[i] ? a.v[i] : b.v[i]); }
BCNN_INLINE Shorts larger(Shorts a, Shorts b) { BCNN_EACH_LANE(a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }
BCNN_INLINE Shorts both_bits(Shorts a, Shorts b) { BCNN_EACH_LANE(a.v[i] & b.v[i]); }
BCNN_INLINE Shorts either_bits(Shorts a, Shorts b) { BCNN_EACH_LANE(a.v[i] | b.v[i]); }
BCNN_INLINE Shorts differing_bits(Shorts a, Shorts b) { BCNN_EACH_LANE(a.v[i] ^ b.v[i]); }
typedef int Amount;  // of a shift, made once
BCNN_INLINE Amount amount(int bits) { return bits; }
BCNN_INLINE Shorts shift_up(Shorts a, Amount bits) { BCNN_EACH_LANE(uint32_t(uint16_t(a.v[i])) << bits); }  // 0 to 16
BCNN_INLINE Shorts shift_down(Shorts a, Amount bits) { BCNN_EACH_LANE(a.v[i] >> bits); }  // of a signed number, 0 to 15
BCNN_INLINE Shorts if_above(Shorts a, Shorts b, Shorts then, Shorts otherwise) {          // a > b ? then : otherwise
    BCNN_EACH_LANE(a.v[i] > b.v[i] ? then.v[i] : otherwise.v[i]);
}
BCNN_INLINE Shorts in_order(Shorts a) { return a; }
#undef BCNN_EACH_LANE
BCNN_INLINE unsigned above(Shorts x, Shorts t) {  // x > t, a bit a lane
    unsigned mask = 0;
    for (int i = 0; i < short_lanes; i++) mask |= unsigned(x.v[i] > t.v[i]) << i;
    return mask;
}
BCNN_INLINE Shorts count_shorts(const Wide* n) {
    Shorts a;
    for (int i = 0; i < short_lanes; i++) a.v[i] = int16_t(n[i]);
    return a;
}

// Sums of 32 bits, each of products of two neighbours.
constexpr int int_lanes = short_lanes / 2;
struct Ints {
    int32_t v[int_lanes];
};
BCNN_INLINE Ints load_ints(const int32_t* p) {
    Ints a;
    for (int i = 0; i < int_lanes; i++) a.v[i] = p[i];
    return a;
}
BCNN_INLINE Shorts narrow(Ints a, Ints b, const int32_t* down) {  // each >> its down, saturated
    Shorts r;
    for (int i = 0; i < short_lanes; i++) {
        const int v = (i < int_lanes ? a.v[i] : b.v[i - int_lanes]) >> down[i];
        r.v[i] = int16_t(v > 32767 ? 32767 : v < -32768 ? -32768 : v);
    }
    return r;
}
typedef const int16_t* Pair;
BCNN_INLINE Pair load_pair(const int16_t* p) { return p; }
template <typename Weight>
BCNN_INLINE Ints add_products(Ints sum, Pair x, const Weight* w) {  // w [lane][2]
    for (int i = 0; i < int_lanes; i++) sum.v[i] += int(x[0]) * w[2 * i] + int(x[1]) * w[2 * i + 1];
    return sum;
}

typedef Wide ShortCount;
typedef ShortCount ShortCounting;
static int dot_place(int channel) { return channel; }
#include "words_shorts.h"
