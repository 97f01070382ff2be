/* The endings of a row that an op has just made, in place. */

static void add_map(const arena *m, const op *o, const ending *e, number *v, uint32_t y) {
    const op *map = ops + e->map;
    const number *other = map_row(m, map, y);
    uint32_t x, k, c;
    for (x = 0; x < o->width; x++, v += o->channels, other += map->channels)
        for (k = 0, c = 0; k < e->reads; k++) {
            v[e->first + k] = added(e, v[e->first + k], other[c]);
            if (++c == map->channels) c = 0;
        }
}

static void gate(const arena *m, const op *o, const ending *e, number *v, uint32_t y) {
    const op *map = ops + e->map;
    const number *by = map_row(m, map, map->height == 1 ? 0 : y);
    uint32_t x, k;
    for (x = 0; x < o->width; x++, v += o->channels) {
        for (k = 0; k < o->channels; k++)
            v[k] = gated(e, v[k], by[map->channels == 1 ? 0 : k]);
        if (map->width > 1) by += map->channels;
    }
}

static void finish(const arena *m, const op *o, number *row, uint32_t y) {
    uint32_t n, k;
    for (n = 0; n < o->ending_count; n++) {
        const ending *e = endings + o->endings + n;
        const int each = e->kind != TABLE && e->kind != CLIP; /* their parameters are not one a channel */
        if (e->kind == ADD)
            add_map(m, o, e, row, y);
        else if (e->kind == GATE)
            gate(m, o, e, row, y);
        else
            for (k = 0; k < o->channels; k++) { /* channel by channel: its parameters are read once a row */
                const parameter a = each && e->a.at != NONE ? value(e->a, k) : 0;
                const parameter b = e->b.at != NONE ? value(e->b, k) : 0;
                uint32_t x;
                number *v = row;
                for (x = 0; x < o->width; x++, v += o->channels) v[k] = ended(e, v[k], a, b);
            }
    }
}
