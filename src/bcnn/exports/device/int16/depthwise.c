/* One filter a channel, 16 bits from tap to tap. Filters are [made][taps], with one step for all or one for each. */

/* The taps of row ky of the filters, on row `in` of the source, for a row of outputs. A weight is read once a row. */
static void filter_taps(const op *o, const int16_t *in, int16_t *out, uint32_t ky) {
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

static void filter_offsets(const op *o, int16_t *out) {
    uint32_t x, k;
    for (x = 0; x < o->width; x++)
        for (k = 0; k < o->channels; k++) *out++ = (int16_t)value(o->b, k);
}
