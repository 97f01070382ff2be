/* One filter a channel, 16 bits from tap to tap. Filters are [made][taps], with one step for all or one for each. */

static void fixed_depthwise(arena *m, const op *o, int16_t *out, uint32_t y) {
    const op *map = ops + o->source;
    const uint32_t taps = (uint32_t)o->kernel_y * o->kernel_x;
    uint32_t x, t, k, c;
    for (x = 0; x < o->width; x++, out += o->channels) {
        for (k = 0; k < o->channels; k++) out[k] = (int16_t)value(o->b, k);
        for (t = 0; t < taps; t++) {
            const int32_t ty = (int32_t)(y * o->stride_y + t / o->kernel_x * o->dilation_y) - o->top;
            const int32_t tx = (int32_t)(x * o->stride_x + t % o->kernel_x * o->dilation_x) - o->left;
            const int16_t *at = tap(m, map, ty, tx);
            if (!at) continue;
            for (k = 0, c = 0; k < o->channels; k++) {
                int32_t weight = value(o->a, k * taps + t);
                if (o->c.at != NONE) weight *= value(o->c, k);
                out[k] = saturated(out[k] + product(at[c], weight));
                if (++c == map->channels) c = 0;
            }
        }
    }
}
