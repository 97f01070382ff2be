/* A row of a convolution that adds up in the numbers of its map: all rows of its taps, or the next one of them. */

static void filter(arena *m, const op *o, number *out, uint32_t y) {
    const op *map = ops + o->source;
    uint32_t ky;
    filter_offsets(o, out);
    for (ky = 0; ky < o->kernel_y; ky++) {
        const int32_t ty = (int32_t)(y * o->stride_y + ky * o->dilation_y) - o->top;
        if (ty >= 0 && ty < map->height) filter_taps(o, map_row(m, map, (uint32_t)ty), out, ky);
    }
}

/* A row of the source is added to all rows that it is part of: with a stride those are fewer than the rows that one is made of. */
static void filter_by_rows(arena *m, const op *o, uint32_t ty) {
    const op *map = ops + o->source;
    uint32_t ky;
    for (ky = 0; ky < o->kernel_y; ky++) {
        const int32_t n = (int32_t)ty + o->top - (int32_t)ky;
        if (n >= 0 && n % o->stride_y == 0 && n / o->stride_y < o->height) {
            const uint32_t y = (uint32_t)n / o->stride_y;
            number *out = m->numbers + slots[o->at + y];
            if (ky == 0 || ty == 0) filter_offsets(o, out);
            filter_taps(o, map_row(m, map, ty), out, ky);
            if (ky + 1 == o->kernel_y || ty + 1 == map->height) finish(m, o, out, y);
        }
    }
}
