/* What an ending does to one value. */

static number added(const ending *e, number v, number other) { return plus(v, shifted(other, e->shift)); }

static number gated(const ending *e, number v, number by) { return saturated(rounded((int32_t)v * by, (unsigned)e->shift)); }

static number curve(const ending *e, int32_t v) {
    const int32_t half = (int32_t)128 << e->shift;
    const int32_t w = v < -half ? -half : v > half - 1 ? half - 1 : v;
    const uint32_t i = (uint32_t)(w + half) >> e->shift;
    const int32_t rest = w + half - (int32_t)(i << e->shift);
    const int32_t from = value(e->a, i), to = value(e->a, i + 1);
    return saturated(from + rounded((to - from) * rest, (unsigned)e->shift));
}

/* v after an ending whose parameters for this channel are a and b. */
static number ended(const ending *e, parameter v, parameter a, parameter b) {
    switch (e->kind) {
    case AFFINE:
        if (e->a.at != NONE) v = saturated(rounded(v * a, (unsigned)e->shift));
        return saturated(v + b);
    case PRELU:
        if (v >= 0) return (int16_t)v;
        if (v < -((int32_t)32768 >> e->shift)) v = -((int32_t)32768 >> e->shift);
        return saturated(v + product(v * ((int32_t)1 << e->shift), a));
    case RELU:
        return (int16_t)(v < 0 ? 0 : v);
    case CLIP:
        return (int16_t)(v < e->low ? e->low : v > e->high ? e->high : v);
    case BOUND:
        return (int16_t)(v > a ? a : v < -a ? -a : v);
    case SHIFT:
        return shifted(v, e->shift);
    case SIGN:
        return (int16_t)(v > a ? e->high : -e->high);
    default: /* TABLE */
        return curve(e, v);
    }
}
