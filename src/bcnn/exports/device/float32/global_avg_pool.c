/* The mean over all pixels: a row of the source is added to the sums in a step, so no map has to be kept. */

static void global_avg_pool(arena *m, const op *o, uint32_t y) {
    const op *map = ops + o->source;
    const number *in = map_row(m, map, y);
    number *out = m->numbers + slots[o->at];
    uint32_t x, k;
    for (x = 0; x < map->width; x++)
        for (k = 0; k < o->channels; k++, in++) out[k] = y || x ? plus(out[k], *in) : *in;
    if (y + 1 == map->height)
        for (k = 0; k < o->channels; k++) out[k] = times(out[k], value(o->a, 0));
}
