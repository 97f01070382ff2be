/* Means over channels: of those with one remainder, or of the magnitudes of all. */

static void channel_means(arena *m, const op *o, number *out, uint32_t y) {
    const op *map = ops + o->source;
    const int16_t *in = map_row(m, map, y);
    uint32_t x, k, c;
    for (x = 0; x < o->width; x++, in += map->channels)
        for (k = 0; k < o->channels; k++) {
            int32_t sum = 0, count = 0;
            for (c = k; c < map->channels; c += o->channels, count++)
                sum += o->kind == ABS_MEAN && in[c] < 0 ? -(int32_t)in[c] : in[c];
            *out++ = saturated(mean(sum, count));
        }
}
