// Signs of 16-bit maps for instruction sets that count the bits of words. Included after the primitives on shorts.
#pragma once

static int short_count_place(int channel) { return channel; }
static size_t short_bits_bytes(int words) { return size_t(words) * 4; }
static size_t short_weight_bytes(int words) { return weight_bytes(32 * words); }
static void pack_short_weight(const uint32_t* weight, int o, int words, uint8_t* out) {
    pack_words(weight, o, 32 * words, group, out);
}
static void short_sign_words(const int16_t* x, View v, int pixels, const int16_t* limit, int words, uint32_t* out);
static void short_sign_pack(const int16_t* x, int pixels, View v, const int16_t* limit, uint8_t* bits, size_t bytes) {
    short_sign_words(x, v, pixels, limit, int(bytes / 4), (uint32_t*)bits);
}

// Counts of register j of a line of channels, times 2^bits.
template <bool>
BCNN_INLINE Shorts shifted_counts(const Wide* n, int j, Amount bits) {
    return shift_up(count_shorts(n + j * short_lanes), bits);
}
