// NEON: two registers of 8 numbers of 16 bits make 16. `sqrdmulh` is R.
#pragma once

constexpr int short_lanes = 16;
struct Shorts {
    int16x8_t a, b;
};
#define BCNN_BOTH(NAME, INSTRUCTION) \
    BCNN_INLINE Shorts NAME(Shorts x, Shorts y) { return {INSTRUCTION(x.a, y.a), INSTRUCTION(x.b, y.b)}; }

BCNN_INLINE Shorts load(const int16_t* p) { return {vld1q_s16(p), vld1q_s16(p + 8)}; }
BCNN_INLINE void store(int16_t* p, Shorts v) {
    vst1q_s16(p, v.a);
    vst1q_s16(p + 8, v.b);
}
BCNN_INLINE Shorts broadcast_short(int value) { return {vdupq_n_s16(int16_t(value)), vdupq_n_s16(int16_t(value))}; }
BCNN_BOTH(product, vqrdmulhq_s16)
BCNN_BOTH(plus, vqaddq_s16)
BCNN_BOTH(add, vaddq_s16)
BCNN_BOTH(subtract, vsubq_s16)
BCNN_BOTH(smaller, vminq_s16)
BCNN_BOTH(larger, vmaxq_s16)
BCNN_BOTH(both_bits, vandq_s16)
BCNN_BOTH(either_bits, vorrq_s16)
BCNN_BOTH(differing_bits, veorq_s16)
#undef BCNN_BOTH
typedef int Amount;  // of a shift, made once
BCNN_INLINE Amount amount(int bits) { return bits; }
BCNN_INLINE Shorts shift_up(Shorts v, Amount bits) {
    const int16x8_t by = vdupq_n_s16(int16_t(bits));
    return {vshlq_s16(v.a, by), vshlq_s16(v.b, by)};
}
BCNN_INLINE Shorts shift_down(Shorts v, Amount bits) { return shift_up(v, -bits); }
BCNN_INLINE Shorts if_above(Shorts x, Shorts y, Shorts then, Shorts otherwise) {
    return {vbslq_s16(vcgtq_s16(x.a, y.a), then.a, otherwise.a), vbslq_s16(vcgtq_s16(x.b, y.b), then.b, otherwise.b)};
}
BCNN_INLINE Shorts in_order(Shorts v) { return v; }
BCNN_INLINE unsigned above(Shorts x, Shorts t) {
    const uint16x8_t low = {1, 2, 4, 8, 16, 32, 64, 128}, high = vshlq_n_u16(low, 8);
    return vaddvq_u16(vorrq_u16(vandq_u16(vcgtq_s16(x.a, t.a), low), vandq_u16(vcgtq_s16(x.b, t.b), high)));
}
BCNN_INLINE int16x8_t narrowed(const Wide* n) {
    return vreinterpretq_s16_u16(vcombine_u16(vmovn_u32(vld1q_u32(n)), vmovn_u32(vld1q_u32(n + 4))));
}
BCNN_INLINE Shorts count_shorts(const Wide* n) { return {narrowed(n), narrowed(n + 8)}; }

constexpr int int_lanes = 8;
struct Ints {
    int32x4_t a, b;
};
typedef int16x8_t Pair;
BCNN_INLINE Ints load_ints(const int32_t* p) { return {vld1q_s32(p), vld1q_s32(p + 4)}; }
BCNN_INLINE int16x8_t narrow_eight(Ints v, const int32_t* down) {
    const int32x4_t a = vshlq_s32(v.a, vnegq_s32(vld1q_s32(down))), b = vshlq_s32(v.b, vnegq_s32(vld1q_s32(down + 4)));
    return vcombine_s16(vqmovn_s32(a), vqmovn_s32(b));
}
BCNN_INLINE Shorts narrow(Ints a, Ints b, const int32_t* down) {  // each >> its down, saturated
    return {narrow_eight(a, down), narrow_eight(b, down + int_lanes)};
}
BCNN_INLINE Pair load_pair(const int16_t* p) {
    int32_t both;
    __builtin_memcpy(&both, p, 4);
    return vreinterpretq_s16_s32(vdupq_n_s32(both));
}
BCNN_INLINE int32x4_t add_products(int32x4_t sum, Pair x, int16x8_t w) {
    return vaddq_s32(sum, vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(w)), vmull_high_s16(x, w)));
}
BCNN_INLINE Ints add_products(Ints sum, Pair x, const int16_t* w) {
    return {add_products(sum.a, x, vld1q_s16(w)), add_products(sum.b, x, vld1q_s16(w + 8))};
}
BCNN_INLINE Ints add_products(Ints sum, Pair x, const int8_t* w) {
    const int8x16_t all = vld1q_s8(w);
    return {add_products(sum.a, x, vmovl_s8(vget_low_s8(all))), add_products(sum.b, x, vmovl_high_s8(all))};
}

typedef Wide ShortCount;
typedef ShortCount ShortCounting;
static int dot_place(int channel) { return channel; }
#include "words_shorts.h"
