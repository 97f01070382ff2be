// WebAssembly SIMD128: two registers of 4 floats make 8, and binary dot products by table.
//
// `i8x16.swizzle` looks up 16 bytes in a table of 16, so avx2.h's derivation holds with half the width: a nibble of 16
// channels' weights in the bytes of a register, one look-up for two pixels, halves of bytes taken apart every three.
// `i8x16.popcnt` would be one instruction on ARM, but ten on x86. Bits of a pair of pixels are offsets of their table,
// 16 * (first nibble + 16 * second nibble), two bytes each, nibbles in the order of the channels: `i8x16.bitmask` makes
// two of them at once.
#pragma once

constexpr int lanes = 8;
struct Floats {
    v128_t a, b;
};

BCNN_INLINE Floats load(const float* p) { return {wasm_v128_load(p), wasm_v128_load(p + 4)}; }
BCNN_INLINE void store(float* p, Floats v) {
    wasm_v128_store(p, v.a);
    wasm_v128_store(p + 4, v.b);
}
BCNN_INLINE Floats broadcast(float v) { return {wasm_f32x4_splat(v), wasm_f32x4_splat(v)}; }
BCNN_INLINE Floats add(Floats x, Floats y) { return {wasm_f32x4_add(x.a, y.a), wasm_f32x4_add(x.b, y.b)}; }
BCNN_INLINE Floats mul(Floats x, Floats y) { return {wasm_f32x4_mul(x.a, y.a), wasm_f32x4_mul(x.b, y.b)}; }
BCNN_INLINE Floats in_order(Floats v) { return v; }                              // the browser's compiler decides
BCNN_INLINE Floats if_less(Floats a, Floats b, Floats then, Floats otherwise) {  // a < b ? then : otherwise
    return {wasm_v128_bitselect(then.a, otherwise.a, wasm_f32x4_lt(a.a, b.a)),
            wasm_v128_bitselect(then.b, otherwise.b, wasm_f32x4_lt(a.b, b.b))};
}
BCNN_INLINE Floats larger(Floats x, Floats y) {
    return {wasm_f32x4_pmax(y.a, x.a), wasm_f32x4_pmax(y.b, x.b)};
}  // x > y ? x : y
BCNN_INLINE Floats if_at_least(Floats a, Floats b, Floats then, Floats otherwise) {
    return {wasm_v128_bitselect(then.a, otherwise.a, wasm_f32x4_ge(a.a, b.a)),
            wasm_v128_bitselect(then.b, otherwise.b, wasm_f32x4_ge(a.b, b.b))};
}
BCNN_INLINE Floats prelu(Floats v, Floats slope) { return if_less(v, broadcast(0), mul(v, slope), v); }
BCNN_INLINE Floats exact_prelu(Floats v, Floats slope) { return prelu(v, slope); }
BCNN_INLINE unsigned at_least(Floats x, Floats t) {
    return unsigned(wasm_i32x4_bitmask(wasm_f32x4_ge(x.a, t.a)) | wasm_i32x4_bitmask(wasm_f32x4_ge(x.b, t.b)) << 4);
}

struct alignas(64) Tables {
    uint8_t of[16][16][16];  // second nibble, first nibble, weights' nibble
    constexpr Tables() : of() {
        for (int i = 0; i < 4096; i++)
            for (int bit = 0; bit < 4; bit++) {
                const int second = i >> 8, first = i >> 4 & 15, weight = i & 15;
                of[second][first][weight] = uint8_t(of[second][first][weight] + ((first ^ weight) >> bit & 1) +
                                                    16 * ((second ^ weight) >> bit & 1));
            }
    }
};
static constexpr Tables tables;

constexpr int together = 2;  // pixels that share a look-up
constexpr int group = 16, tile_pixels = 4, tile_groups = 2;
constexpr int finish_registers = 1;  // that `finish` makes at a time: half the code, and a register is two here
constexpr int conv_pixels = 4, conv_registers = 2;  // a tile of a dense convolution
typedef uint8_t Narrow;                             // counts fit a byte
typedef uint16_t Wide;
typedef Wide Counting;
constexpr int narrow_limit = 252;

constexpr int rank_replicas = 0;  // no table for the replicas of an image: not measured
BCNN_INLINE void rank_pack(const float*, int, const FloatRankTable&, uint8_t*) {}

BCNN_INLINE int nibbles(int k) { return (k + 7) / 8 * 2; }
BCNN_INLINE size_t bits_bytes(int k) { return size_t(nibbles(k)) * 2; }
BCNN_INLINE size_t weight_bytes(int k) { return size_t(nibbles(k)) * group; }

// x >= threshold of a block of pixels, as offsets of tables. An odd last pixel is paired with itself. Comparisons of
// eight channels and two pixels are narrowed to bytes so that a byte of their mask is a nibble of each pixel.
static void sign_pack(const float* x, int pixels, View v, const float* threshold, uint8_t* bits, size_t bytes) {
    for (int j = 0, c = 0; j < int(bytes / 4); j++, c = wrapped(c + lanes, v.period)) {
        const Floats t = load(threshold + j * lanes);
        const float* from = x + place_of(v, c);
        uint8_t* to = bits + 4 * j;
        for (int p = 0; p < pixels; p += 2, from += 2 * kLine, to += bytes) {
            const Floats one = load(from), other = load(p + 1 < pixels ? from + kLine : from);
            const v128_t low = wasm_i16x8_narrow_i32x4(wasm_f32x4_ge(one.a, t.a), wasm_f32x4_ge(other.a, t.a));
            const v128_t high = wasm_i16x8_narrow_i32x4(wasm_f32x4_ge(one.b, t.b), wasm_f32x4_ge(other.b, t.b));
            const uint32_t numbers = wasm_i8x16_bitmask(wasm_i8x16_narrow_i16x8(low, high));
            const uint32_t offsets = (numbers & 0xFF) << 4 | (numbers & 0xFF00) << 12;
            __builtin_memcpy(to, &offsets, 4);
        }
    }
}

static void pack_weight(const uint32_t* weight, int o, int k, uint8_t* out) {
    const int words = (k + 31) / 32, count = nibbles(k);
    for (int c = 0; c < o; c++) {
        uint8_t* const to = out + size_t(c / group) * weight_bytes(k) + c % group;
        const uint32_t* const from = weight + size_t(c) * size_t(words);
        for (int i = 0; i < count; i++) to[size_t(i) * group] = uint8_t(from[i / 8] >> (i % 8 * 4) & 15);
    }
}
static void pack_taps(const uint32_t* weight, int o, int words, bool, uint8_t* out) {
    pack_weight(weight, o, 32 * words, out);
}

// Bits of two pixels that are already words, as offsets of tables: 4 bytes of each become 8 offsets.
BCNN_INLINE void spread_words(const uint32_t* one, const uint32_t* other, int words, uint8_t* bits) {
    const v128_t low = wasm_i8x16_splat(15);
    for (int i = 0; i < words; i++, bits += 16) {
        const v128_t a = wasm_v128_load32_zero(one + i), b = wasm_v128_load32_zero(other + i);
        const v128_t lows = wasm_v128_or(wasm_v128_and(a, low), wasm_i16x8_shl(wasm_v128_and(b, low), 4));
        const v128_t highs = wasm_v128_or(wasm_v128_and(wasm_u16x8_shr(a, 4), low), wasm_v128_andnot(b, low));
        const v128_t both = wasm_i8x16_shuffle(lows, highs, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
        wasm_v128_store(bits, wasm_i16x8_shl(wasm_u16x8_extend_low_u8x16(both), 4));
    }
}

BCNN_INLINE Floats widened(v128_t n) {  // eight 16-bit numbers
    return {wasm_f32x4_convert_i32x4(wasm_u32x4_extend_low_u16x8(n)),
            wasm_f32x4_convert_i32x4(wasm_u32x4_extend_high_u16x8(n))};
}
BCNN_INLINE Floats counts(const Narrow* n) { return widened(wasm_u16x8_load8x8(n)); }
BCNN_INLINE Floats counts(const Wide* n) { return widened(wasm_v128_load(n)); }

// `count` (1 to 3) nibbles from nibble i on, for T / 2 pairs of pixels and G groups of channels.
template <int T, int G, int count>
BCNN_INLINE void look_up(const uint8_t* bits, size_t bytes, const uint8_t* w, size_t w_group, int i,
                         v128_t (&sum)[T][G]) {
    v128_t halves[T / 2][G];
    for (int j = 0; j < count; j++) {
        v128_t weights[G];
        for (int g = 0; g < G; g++) weights[g] = wasm_v128_load(w + g * w_group + (i + j) * group);
        for (int t = 0; t < T / 2; t++) {
            uint16_t offset;
            __builtin_memcpy(&offset, bits + t * bytes + 2 * (i + j), 2);
            const v128_t table = wasm_v128_load(&tables.of[0][0][0] + offset);
            for (int g = 0; g < G; g++) {
                const v128_t found = wasm_i8x16_swizzle(table, weights[g]);
                halves[t][g] = j ? wasm_i8x16_add(halves[t][g], found) : found;
            }
        }
    }
    for (int t = 0; t < T; t += 2)
        for (int g = 0; g < G; g++) {
            sum[t][g] = wasm_i8x16_add(sum[t][g], wasm_v128_and(halves[t / 2][g], wasm_i8x16_splat(15)));
            sum[t + 1][g] = wasm_i16x8_add(sum[t + 1][g], wasm_u16x8_shr(halves[t / 2][g], 4));
        }
}

template <int T, int G>
BCNN_INLINE void dot_bytes(const uint8_t* bits, size_t bytes, const uint8_t* w, size_t w_group, int begin, int end,
                           v128_t (&sum)[T][G]) {
    for (int t = 0; t < T; t++)
        for (int g = 0; g < G; g++) sum[t][g] = wasm_i8x16_splat(0);
    int i = begin;
    for (; i + 3 <= end; i += 3) look_up<T, G, 3>(bits, bytes, w, w_group, i, sum);
    if (i + 2 == end) look_up<T, G, 2>(bits, bytes, w, w_group, i, sum);
    if (i + 1 == end) look_up<T, G, 1>(bits, bytes, w, w_group, i, sum);
    for (int t = 0; t < T; t += 2)
        for (int g = 0; g < G; g++) {
            const v128_t from_odd = wasm_v128_and(wasm_u16x8_shr(sum[t][g], 4), wasm_i16x8_splat(0x0FF0));
            sum[t + 1][g] = wasm_i16x8_sub(sum[t + 1][g], from_odd);
        }
}

// n for T pixels and G groups of channels; `bytes` of bits of a pair of pixels; out [T][next]
template <int T, int G>
BCNN_INLINE void dot(const uint8_t* bits, size_t bytes, const uint8_t* w, size_t w_group, Narrow* out, int next) {
    v128_t sum[T][G];
    dot_bytes<T, G>(bits, bytes, w, w_group, 0, int(w_group / group), sum);
    for (int t = 0; t < T; t++)
        for (int g = 0; g < G; g++) wasm_v128_store(out + t * next + g * group, sum[t][g]);
}
template <int T, int G>
BCNN_INLINE void dot(const uint8_t* bits, size_t bytes, const uint8_t* w, size_t w_group, Wide* out, int next) {
    const int count = int(w_group / group);
    const int parts = (count + 62) / 63;                         // a byte holds 63 * 4 = 252
    const int part = ((count + parts - 1) / parts + 2) / 3 * 3;  // whole rounds of three
    for (int begin = 0; begin < count; begin += part) {
        v128_t sum[T][G];
        dot_bytes<T, G>(bits, bytes, w, w_group, begin, begin + part < count ? begin + part : count, sum);
        for (int t = 0; t < T; t++)
            for (int g = 0; g < G; g++) {
                Wide* const to = out + t * next + g * group;
                v128_t low = wasm_u16x8_extend_low_u8x16(sum[t][g]), high = wasm_u16x8_extend_high_u8x16(sum[t][g]);
                if (begin) {
                    low = wasm_i16x8_add(low, wasm_v128_load(to));
                    high = wasm_i16x8_add(high, wasm_v128_load(to + 8));
                }
                wasm_v128_store(to, low);
                wasm_v128_store(to + 8, high);
            }
    }
}

// For popcount_peak. `hidden`: the compiler must take it for a new value.
typedef v128_t Bits;
BCNN_INLINE Bits bits_of(uint32_t word) { return wasm_i32x4_splat(int(word)); }
BCNN_INLINE Bits count_differing(Bits sum, Bits x, Bits w) {
    return wasm_i8x16_add(sum, wasm_i8x16_popcnt(wasm_v128_xor(x, w)));
}
BCNN_INLINE Bits hidden(Bits v) {
    volatile v128_t one = v;
    return one;
}
