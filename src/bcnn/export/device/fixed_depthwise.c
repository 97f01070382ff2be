/* One filter a channel, 16 bits from tap to tap. Filters are [made][taps], with one step for all or one for each. */

/* The taps of row ky of the filters, on row `in` of the source, for a row of outputs. A weight is read once a row. */
static void depthwise_taps(const op *o, const int16_t *in, int16_t *out, uint32_t ky) {
    const op *map = ops + o->source;
    uint32_t weight_at = ky * o->kernel_x, x, kx, k, c;
    for (k = 0, c = 0; k < o->channels; k++, weight_at += (uint32_t)o->kernel_y * o->kernel_x) {
        const int32_t step = o->c.at != NONE ? value(o->c, k) : 1;
        for (kx = 0; kx < o->kernel_x; kx++) {
            const int32_t weight = value(o->a, weight_at + kx) * step;
            int32_t tx = (int32_t)(kx * o->dilation_x) - o->left;
            int16_t *at = out;
            for (x = 0; x < o->width; x++, tx += o->stride_x, at += o->channels)
                if (tx >= 0 && tx < map->width)
                    at[k] = saturated(at[k] + product(in[(uint32_t)tx * map->channels + c], weight));
        }
        if (++c == map->channels) c = 0;
    }
}

static void depthwise_offsets(const op *o, int16_t *out) {
    uint32_t x, k;
    for (x = 0; x < o->width; x++)
        for (k = 0; k < o->channels; k++) *out++ = (int16_t)value(o->b, k);
}

static void fixed_depthwise(arena *m, const op *o, int16_t *out, uint32_t y) {
    const op *map = ops + o->source;
    uint32_t ky;
    depthwise_offsets(o, out);
    for (ky = 0; ky < o->kernel_y; ky++) {
        const int32_t ty = (int32_t)(y * o->stride_y + ky * o->dilation_y) - o->top;
        if (ty >= 0 && ty < map->height) depthwise_taps(o, map_row(m, map, (uint32_t)ty), out, ky);
    }
}

/* A row of the source is added to all rows that it is part of: with a stride those are fewer than the rows that one is made of. */
static void fixed_depthwise_by_rows(arena *m, const op *o, uint32_t ty) {
    const op *map = ops + o->source;
    uint32_t ky;
    for (ky = 0; ky < o->kernel_y; ky++) {
        const int32_t n = (int32_t)ty + o->top - (int32_t)ky;
        if (n >= 0 && n % o->stride_y == 0 && n / o->stride_y < o->height) {
            const uint32_t y = (uint32_t)n / o->stride_y;
            int16_t *out = m->numbers + slots[o->at + y];
            if (ky == 0 || ty == 0) depthwise_offsets(o, out);
            depthwise_taps(o, map_row(m, map, ty), out, ky);
            if (ky + 1 == o->kernel_y || ty + 1 == map->height) finish(m, o, out, y);
        }
    }
}
