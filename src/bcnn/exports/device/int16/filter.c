/* A row of a depth wise filter adds up in the numbers of its map: all rows of its taps, or the next one of them. */

static void filter(arena *m, const op *o, int16_t *out, uint32_t y) {
    const op *map = ops + o->source;
    uint32_t ky = 0, first, fresh = 1;
    while (ky < o->kernel_y || fresh) {
        const int16_t *in[ROWS];
        uint32_t rows = 0;
        for (first = ky; ky < o->kernel_y && rows < ROWS; ky++) {
            const int32_t ty = (int32_t)(y * o->stride_y + ky * o->dilation_y) - o->top;
            if (ty >= 0 && ty < map->height)
                in[rows++] = map_row(m, map, (uint32_t)ty);
            else if (rows)
                break;
            else
                first = ky + 1;
        }
        filter_taps(o, in, rows, out, first, fresh);
        fresh = 0;
    }
}

/* A row of the source is added to all rows that it is part of: with a stride those are fewer than the rows that one is made of. */
static void filter_by_rows(arena *m, const op *o, uint32_t ty) {
    const op *map = ops + o->source;
    const int16_t *in = map_row(m, map, ty);
    uint32_t ky;
    for (ky = 0; ky < o->kernel_y; ky++) {
        const int32_t n = (int32_t)ty + o->top - (int32_t)ky;
        if (n >= 0 && n % o->stride_y == 0 && n / o->stride_y < o->height) {
            const uint32_t y = (uint32_t)n / o->stride_y;
            int16_t *out = m->numbers + slots[o->at + y];
            filter_taps(o, &in, 1, out, ky, ky == 0 || ty == 0);
            if (ky + 1 == o->kernel_y || ty + 1 == map->height) finish(m, o, out, y);
        }
    }
}
