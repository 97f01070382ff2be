/* What an ending does to one value. */

static number added(const ending *e, number v, number other) {
    (void)e;
    return plus(other, v);
}

static number gated(const ending *e, number v, number by) {
    (void)e;
    return times(v, by);
}

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

/* v after an ending whose parameters for this channel are a and b. */
static number ended(const ending *e, parameter v, parameter a, parameter b) {
    switch (e->kind) {
    case AFFINE:
        if (e->a.at != NONE) v = times(v, a);
        return e->b.at != NONE ? plus(v, b) : v;
    case PRELU:
        return v < 0 ? times(a, v) : v;
    case RELU:
        return v < 0 ? 0 : v;
    case CLIP:
        v = v < value(e->a, 0) ? value(e->a, 0) : v;
        return v > value(e->a, 1) ? value(e->a, 1) : v;
    case SIGN:
        return v >= a ? 1.0f : -1.0f;
    default: /* SIGMOID */
        return sigmoid(v);
    }
}
