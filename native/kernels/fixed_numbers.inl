// The arithmetic of bcnn/program/ops/fixed_numbers.py on registers of 16-bit numbers, where simd/*_shorts.h has no
// primitive for it.

constexpr int line_registers = kShortLine / short_lanes;

BCNN_INLINE int16_t saturated(int64_t v) { return int16_t(v > 32767 ? 32767 : v < -32768 ? -32768 : v); }

// v >> bits, rounded: the last bit shifted out is added. No sum can leave 16 bits.
BCNN_INLINE Shorts rounded_down(Shorts v, int bits) {
    if (bits == 0) return v;
    return add(shift_down(v, amount(bits)), both_bits(shift_down(v, amount(bits - 1)), broadcast_short(1)));
}

// v * 2^up, saturated or rounded.
BCNN_INLINE Shorts shifted(Shorts v, int up) {
    for (int i = 0; i < up; i++) v = plus(v, v);
    return up < 0 ? rounded_down(v, -up) : v;
}

// a * b >> down, rounded and saturated.
BCNN_INLINE Shorts scaled(Shorts a, Shorts b, int down) {
    int16_t x[short_lanes], y[short_lanes];
    store(x, a);
    store(y, b);
    const int half = (1 << down) >> 1;
    for (int i = 0; i < short_lanes; i++) {
        const int v = (int(x[i]) * int(y[i]) + half) >> down;
        x[i] = int16_t(v > 32767 ? 32767 : v < -32768 ? -32768 : v);
    }
    return load(x);
}

BCNN_INLINE Shorts straight(Shorts v, Shorts bend) {  // PReLU with up = 0
    return plus(v, product(smaller(v, broadcast_short(0)), bend));
}
BCNN_INLINE Shorts bent(Shorts v, Shorts bend, Amount up, Shorts least) {  // least: -(2^15 >> up)
    v = larger(v, least);
    return plus(v, product(shift_up(smaller(v, broadcast_short(0)), up), bend));
}

// total / count, the nearest whole number, halves up; count > 0.
BCNN_INLINE int16_t mean_of(int64_t total, int64_t count) {
    const int64_t above_line = 2 * total + count, below = 2 * count;
    int64_t quotient = above_line / below;
    if (above_line % below < 0) quotient--;
    return saturated(quotient);
}
