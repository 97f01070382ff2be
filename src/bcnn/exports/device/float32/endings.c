/* What an ending does to one value. */

static number added(number v, number other) { return plus(other, v); }

static number gated(number v, number by) { return times(v, by); }

static number scaled(number v, number a) { return times(v, a); }

static number moved(number v, number b) { return plus(v, b); }

static number prelu(number v, number a) { return v < 0 ? times(a, v) : v; }

static number relu(number v) { return v < 0 ? 0 : v; }

static number clip(number v, number low, number high) {
    v = v < low ? low : v;
    return v > high ? high : v;
}

static number sign(number v, number a) { return v >= a ? 1.0f : -1.0f; }

/* 1 / (1 + e^-v): z = -v is k ln 2 + r, e^r a series up to r^6 / 720, 2^k put together from its exponent. Constants are log2(e), and
 * ln 2 in two parts. */
static number sigmoid(number v) {
    static const number series[] = {0x1.6c16c2p-10f, 0x1.111112p-7f, 0x1.555556p-5f, 0x1.555556p-3f, 0x1p-1f, 0x1p+0f, 0x1p+0f};
    number z = -v, k, r, e, power;
    uint32_t bits, n;
    z = z < -87 ? -87 : z;
    z = z > 87 ? 87 : z;
    k = less(plus(times(z, 0x1.715476p+0f), 12582912), 12582912); /* 1.5 * 2^23: rounds to a whole number */
    r = less(less(z, times(k, 0x1.62e4p-1f)), times(k, 0x1.7f7d1cp-20f));
    e = series[0];
    for (n = 1; n < sizeof series / sizeof *series; n++) e = plus(times(e, r), series[n]);
    bits = (uint32_t)((k == k ? (int32_t)k : 0) + 127) << 23;
    memcpy(&power, &bits, sizeof power);
    return over(1, plus(1, times(e, power)));
}
