// WebAssembly SIMD128: two registers of 8 numbers of 16 bits make 16. `i16x8.q15mulr_sat_s` is R.
#pragma once

constexpr int short_lanes = 16;
struct Shorts {
    v128_t a, b;
};
#define BCNN_BOTH(NAME, INSTRUCTION) \
    BCNN_INLINE Shorts NAME(Shorts x, Shorts y) { return {INSTRUCTION(x.a, y.a), INSTRUCTION(x.b, y.b)}; }

BCNN_INLINE Shorts load(const int16_t* p) { return {wasm_v128_load(p), wasm_v128_load(p + 8)}; }
BCNN_INLINE void store(int16_t* p, Shorts v) {
    wasm_v128_store(p, v.a);
    wasm_v128_store(p + 8, v.b);
}
BCNN_INLINE Shorts broadcast_short(int value) {
    return {wasm_i16x8_splat(int16_t(value)), wasm_i16x8_splat(int16_t(value))};
}
BCNN_BOTH(product, wasm_i16x8_q15mulr_sat)
BCNN_BOTH(plus, wasm_i16x8_add_sat)
BCNN_BOTH(add, wasm_i16x8_add)
BCNN_BOTH(subtract, wasm_i16x8_sub)
BCNN_BOTH(smaller, wasm_i16x8_min)
BCNN_BOTH(larger, wasm_i16x8_max)
BCNN_BOTH(both_bits, wasm_v128_and)
BCNN_BOTH(either_bits, wasm_v128_or)
BCNN_BOTH(differing_bits, wasm_v128_xor)
#undef BCNN_BOTH
typedef int Amount;  // of a shift, made once
BCNN_INLINE Amount amount(int bits) { return bits; }
BCNN_INLINE Shorts shift_up(Shorts v, Amount bits) {  // 0 to 16; the instruction takes 16 for 0
    if (bits > 15) return broadcast_short(0);
    return {wasm_i16x8_shl(v.a, uint32_t(bits)), wasm_i16x8_shl(v.b, uint32_t(bits))};
}
BCNN_INLINE Shorts shift_down(Shorts v, Amount bits) {
    return {wasm_i16x8_shr(v.a, uint32_t(bits)), wasm_i16x8_shr(v.b, uint32_t(bits))};
}
BCNN_INLINE Shorts if_above(Shorts x, Shorts y, Shorts then, Shorts otherwise) {
    return {wasm_v128_bitselect(then.a, otherwise.a, wasm_i16x8_gt(x.a, y.a)),
            wasm_v128_bitselect(then.b, otherwise.b, wasm_i16x8_gt(x.b, y.b))};
}
BCNN_INLINE Shorts in_order(Shorts v) { return v; }
BCNN_INLINE unsigned above(Shorts x, Shorts t) {
    return wasm_i8x16_bitmask(wasm_i8x16_narrow_i16x8(wasm_i16x8_gt(x.a, t.a), wasm_i16x8_gt(x.b, t.b)));
}

constexpr int int_lanes = 8;
struct Ints {
    v128_t a, b;
};
typedef v128_t Pair;
BCNN_INLINE Ints load_ints(const int32_t* p) { return {wasm_v128_load(p), wasm_v128_load(p + 4)}; }
BCNN_INLINE v128_t narrow_eight(Ints v, const int32_t* down) {  // no shift has an amount for each lane
    int32_t sums[int_lanes];
    wasm_v128_store(sums, v.a);
    wasm_v128_store(sums + 4, v.b);
    for (int i = 0; i < int_lanes; i++) sums[i] >>= down[i];
    return wasm_i16x8_narrow_i32x4(wasm_v128_load(sums), wasm_v128_load(sums + 4));
}
BCNN_INLINE Shorts narrow(Ints a, Ints b, const int32_t* down) {  // each >> its down, saturated
    return {narrow_eight(a, down), narrow_eight(b, down + int_lanes)};
}
BCNN_INLINE Pair load_pair(const int16_t* p) { return wasm_v128_load32_splat(p); }
BCNN_INLINE Ints add_products(Ints sum, Pair x, const int16_t* w) {
    return {wasm_i32x4_add(sum.a, wasm_i32x4_dot_i16x8(x, wasm_v128_load(w))),
            wasm_i32x4_add(sum.b, wasm_i32x4_dot_i16x8(x, wasm_v128_load(w + 8)))};
}
BCNN_INLINE Ints add_products(Ints sum, Pair x, const int8_t* w) {
    return {wasm_i32x4_add(sum.a, wasm_i32x4_dot_i16x8(x, wasm_i16x8_load8x8(w))),
            wasm_i32x4_add(sum.b, wasm_i32x4_dot_i16x8(x, wasm_i16x8_load8x8(w + 8)))};
}

// --- bits ------------------------------------------------------------------------------------------------------------

static int short_count_place(int channel) { return channel; }
static size_t short_bits_bytes(int words) { return bits_bytes(32 * words); }
static size_t short_weight_bytes(int words) { return weight_bytes(32 * words); }
static void pack_short_weight(const uint32_t* weight, int o, int words, uint8_t* out) {
    pack_weight(weight, o, 32 * words, out);
}
static void pack_short_taps(const uint32_t* weight, int o, int words, uint8_t* out) {
    pack_taps(weight, o, words, false, out);
}
typedef Wide ShortCount;
typedef ShortCount ShortCounting;

// x > limit of eight channels of two pixels, as two offsets of tables: a byte of the mask is a nibble of each pixel.
BCNN_INLINE void short_sign_8(const int16_t* one, const int16_t* other, v128_t limit, uint8_t* to) {
    const v128_t above_one = wasm_i16x8_gt(wasm_v128_load(one), limit);
    const v128_t above_other = wasm_i16x8_gt(wasm_v128_load(other), limit);
    const v128_t bytes = wasm_i8x16_narrow_i16x8(above_one, above_other);
    const uint32_t numbers = wasm_i8x16_bitmask(wasm_i32x4_shuffle(bytes, bytes, 0, 2, 1, 3));
    const uint32_t offsets = (numbers & 0xFF) << 4 | (numbers & 0xFF00) << 12;
    __builtin_memcpy(to, &offsets, 4);
}

// Of a block of pixels; an odd last one is paired with itself.
static void short_sign_pack(const int16_t* x, int pixels, View v, const int16_t* limit, uint8_t* bits, size_t bytes) {
    for (int j = 0, c = 0; j < int(bytes / 8); j++, c = wrapped(c + short_lanes, v.period)) {
        const Shorts t = load(limit + j * short_lanes);
        const int16_t* from = x + place_of<int16_t>(v, c);
        uint8_t* to = bits + 8 * j;
        for (int p = 0; p < pixels; p += 2, from += 2 * kShortLine, to += bytes) {
            const int16_t* const other = p + 1 < pixels ? from + kShortLine : from;
            short_sign_8(from, other, t.a, to);
            short_sign_8(from + 8, other + 8, t.b, to + 4);
        }
    }
}

// A line of counts from two rows of a RankTable.
BCNN_INLINE void add_rows(const uint8_t* one, const uint8_t* other, Narrow* n) {
    for (int i = 0; i < kShortLine; i += 16)
        wasm_v128_store(n + i, wasm_i8x16_add(wasm_v128_load(one + i), wasm_v128_load(other + i)));
}

// Counts of register j of a line of channels, times 2^bits.
template <bool>
BCNN_INLINE Shorts shifted_counts(const Narrow* n, int j, Amount bits) {
    const v128_t all = wasm_v128_load(n + j * short_lanes);
    return shift_up({wasm_u16x8_extend_low_u8x16(all), wasm_u16x8_extend_high_u8x16(all)}, bits);
}
template <bool>
BCNN_INLINE Shorts shifted_counts(const Wide* n, int j, Amount bits) {
    return shift_up(load((const int16_t*)n + j * short_lanes), bits);
}
