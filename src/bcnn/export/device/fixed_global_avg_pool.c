/* The mean over all pixels: a row of the source is added to the sums in a step, so no map has to be kept. */

static void fixed_global_avg_pool(arena *m, const op *o, int16_t *out, uint32_t y) {
    const op *map = ops + o->source;
    const int16_t *in = map_row(m, map, y);
    const int32_t count = (int32_t)map->height * map->width;
    uint32_t *sums = m->words + o->extra; /* modulo 2^32; the true sums fit 32 bits with a sign */
    uint32_t x, k;
    if (y == 0) memset(sums, 0, o->channels * sizeof *sums);
    for (x = 0; x < map->width; x++)
        for (k = 0; k < o->channels; k++) sums[k] += (uint32_t)(int32_t)*in++;
    if (y + 1 < map->height) return;
    for (k = 0; k < o->channels; k++) {
        /* total * 2^up / count without 64 bits: whole and rest of total / count are shifted one by one */
        const int32_t total = sums[k] < 0x80000000u ? (int32_t)sums[k] : -(int32_t)(0xffffffffu - sums[k]) - 1;
        const int32_t whole = floor_of(total, count);
        const uint32_t rest = (uint32_t)(total - whole * count);
        const uint32_t more = ((rest << o->shift) + (uint32_t)count / 2) / (uint32_t)count;
        out[k] = saturated(whole * ((int32_t)1 << o->shift) + (int32_t)more);
    }
}
