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

static int16_t ended(const ending *e, int32_t v, uint32_t k) {
    int32_t n;
    switch (e->kind) {
    case FIXED_AFFINE:
        if (e->a.at != NONE) v = saturated(rounded(v * value(e->a, k), (unsigned)e->shift));
        return saturated(e->b.at != NONE ? v + value(e->b, k) : v);
    case FIXED_PRELU:
        n = -((int32_t)32768 >> e->shift);
        if (v < n) v = n;
        return saturated(v + product((v < 0 ? v : 0) * ((int32_t)1 << e->shift), value(e->a, k)));
    case RELU:
        return (int16_t)(v < 0 ? 0 : v);
    case FIXED_CLIP:
        return (int16_t)(v < e->low ? e->low : v > e->high ? e->high : v);
    case BOUND:
        n = value(e->a, k);
        return (int16_t)(v > n ? n : v < -n ? -n : v);
    case SHIFT:
        return shifted(v, e->shift);
    case FIXED_SIGN:
        return (int16_t)(v > value(e->a, k) ? e->high : -e->high);
    default: /* TABLE */
        return curve(e, v);
    }
}

static void finish(const arena *m, const op *o, int16_t *row, uint32_t y) {
    uint32_t n, x, k;
    for (n = 0; n < o->ending_count; n++) {
        const ending *e = endings + o->endings + n;
        int16_t *v = row;
        if (e->kind == FIXED_ADD)
            add_map(m, o, e, row, y);
        else if (e->kind == FIXED_GATE)
            gate(m, o, e, row, y);
        else
            for (x = 0; x < o->width; x++, v += o->channels)
                for (k = 0; k < o->channels; k++) v[k] = ended(e, v[k], k);
    }
}
