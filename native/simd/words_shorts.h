// Signs of 16-bit maps and weights for instruction sets that count the bits of words. Included after the primitives on
// shorts, `ShortCount` and dot_place.
#pragma once

static int short_count_place(int channel) { return channel; }
static size_t short_bits_bytes(int words) { return size_t(words) * 4; }
static size_t short_weight_bytes(int words) { return weight_bytes(32 * words); }
static void pack_short_weight(const uint32_t* weight, int o, int words, uint8_t* out) {
    for (int c = 0; c < o; c++)
        for (int i = 0; i < words; i++) {
            const size_t at = size_t(dot_place(c));
            __builtin_memcpy(out + 4 * ((at / group * size_t(words) + size_t(i)) * group + at % group),
                             weight + size_t(c) * size_t(words) + i, 4);
        }
}
static void pack_short_taps(const uint32_t* weight, int o, int words, uint8_t* out) {
    pack_short_weight(weight, o, words, out);
}
static void short_sign_words(const int16_t* x, View v, int pixels, const int16_t* limit, int words, uint32_t* out);
static void short_sign_pack(const int16_t* x, int pixels, View v, const int16_t* limit, uint8_t* bits, size_t bytes) {
    short_sign_words(x, v, pixels, limit, int(bytes / 4), (uint32_t*)bits);
}

// Counts of register j of a line of channels, times 2^bits.
template <bool>
BCNN_INLINE Shorts shifted_counts(const ShortCount* n, int j, Amount bits) {
    return shift_up(count_shorts(n + j * short_lanes), bits);
}
