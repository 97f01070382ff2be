/* The endings of a row that an op has just made, in place. */

static void add_map(const arena *m, const op *o, const ending *e, int16_t *v, uint32_t y) {
    const op *map = ops + e->map;
    const int16_t *other = map_row(m, map, y);
    uint32_t x, k, c;
    for (x = 0; x < o->width; x++, v += o->channels, other += map->channels)
        for (k = 0, c = 0; k < e->reads; k++) {
            v[e->first + k] = saturated((int32_t)v[e->first + k] + shifted(other[c], e->shift));
            if (++c == map->channels) c = 0;
        }
}

static void gate(const arena *m, const op *o, const ending *e, int16_t *v, uint32_t y) {
    const op *map = ops + e->map;
    const int16_t *by = map_row(m, map, map->height == 1 ? 0 : y);
    uint32_t x, k;
    for (x = 0; x < o->width; x++, v += o->channels) {
        for (k = 0; k < o->channels; k++)
            v[k] = saturated(rounded((int32_t)v[k] * by[map->channels == 1 ? 0 : k], (unsigned)e->shift));
        if (map->width > 1) by += map->channels;
    }
}

static int16_t curve(const ending *e, int32_t v) {
    const int32_t half = (int32_t)128 << e->shift;
    const int32_t w = v < -half ? -half : v > half - 1 ? half - 1 : v;
    const uint32_t i = (uint32_t)(w + half) >> e->shift;
    const int32_t rest = w + half - (int32_t)(i << e->shift);
    const int32_t from = value(e->a, i), to = value(e->a, i + 1);
    return saturated(from + rounded((to - from) * rest, (unsigned)e->shift));
}

/* v after an ending whose parameters for this channel are a and b. */
static int16_t ended(const ending *e, int32_t v, int32_t a, int32_t b) {
    switch (e->kind) {
    case FIXED_AFFINE:
        if (e->a.at != NONE) v = saturated(rounded(v * a, (unsigned)e->shift));
        return saturated(v + b);
    case FIXED_PRELU:
        if (v >= 0) return (int16_t)v;
        if (v < -((int32_t)32768 >> e->shift)) v = -((int32_t)32768 >> e->shift);
        return saturated(v + product(v * ((int32_t)1 << e->shift), a));
    case RELU:
        return (int16_t)(v < 0 ? 0 : v);
    case FIXED_CLIP:
        return (int16_t)(v < e->low ? e->low : v > e->high ? e->high : v);
    case BOUND:
        return (int16_t)(v > a ? a : v < -a ? -a : v);
    case SHIFT:
        return shifted(v, e->shift);
    case FIXED_SIGN:
        return (int16_t)(v > a ? e->high : -e->high);
    default: /* TABLE */
        return curve(e, v);
    }
}

static void finish(const arena *m, const op *o, int16_t *row, uint32_t y) {
    uint32_t n, k;
    for (n = 0; n < o->ending_count; n++) {
        const ending *e = endings + o->endings + n;
        if (e->kind == FIXED_ADD)
            add_map(m, o, e, row, y);
        else if (e->kind == FIXED_GATE)
            gate(m, o, e, row, y);
        else
            for (k = 0; k < o->channels; k++) { /* channel by channel: its parameters are read once a row */
                const int32_t a = e->a.at != NONE && e->kind != TABLE ? value(e->a, k) : 0;
                const int32_t b = e->b.at != NONE ? value(e->b, k) : 0;
                uint32_t x;
                int16_t *v = row;
                for (x = 0; x < o->width; x++, v += o->channels) v[k] = ended(e, v[k], a, b);
            }
    }
}
