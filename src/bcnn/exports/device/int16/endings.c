/* What an ending does to one value. Shifts are constants of the functions that call these. */

static int32_t added(int32_t v, int32_t other, int up) { return clamped(v + (up ? shifted(other, up) : other)); }

static int32_t gated(int32_t v, int32_t by, unsigned n) { return clamped(rounded(v * by, n)); }

static int32_t scaled(int32_t v, int32_t a, unsigned n) { return clamped(rounded(v * a, n)); }

static int32_t moved(int32_t v, int32_t b) { return clamped(v + b); }

static int32_t prelu(int32_t v, int32_t a, int32_t half, unsigned up) { /* a is the bend times 2^up */
    if (v >= 0) return v;
    if (up && v < -((int32_t)32768 >> up)) v = -((int32_t)32768 >> up);
    return clamped(v + product(v, a, half));
}

static int32_t relu(int32_t v) { return v < 0 ? 0 : v; }

static int32_t clip(int32_t v, int32_t low, int32_t high) { return v < low ? low : v > high ? high : v; }

static int32_t bound(int32_t v, int32_t a) { return v > a ? a : v < -a ? -a : v; }

static int32_t sign(int32_t v, int32_t a, int32_t one) { return v > a ? one : -one; }

static int32_t curve(int32_t v, vec values, unsigned n) {
    const int32_t half = (int32_t)128 << n;
    const int32_t w = v < -half ? -half : v > half - 1 ? half - 1 : v;
    const uint32_t i = (uint32_t)(w + half) >> n;
    const int32_t rest = w + half - (int32_t)(i << n);
    const int32_t from = value(values, i), to = value(values, i + 1);
    return clamped(from + rounded((to - from) * rest, n));
}

/* Of the signs that differ: scale is twice the scale of a dot, all is what the dot of equal signs would make, and 2^14. */
static int32_t term_of(int32_t v, int32_t scale, int32_t all, int32_t offset) { return down(all - v * scale, 15) + offset; }
