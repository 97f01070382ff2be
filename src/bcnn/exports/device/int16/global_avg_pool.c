/* The mean over all pixels: a row of the source is added to the sums in a step, so no map has to be kept.
 * A sum of 32 bits is two numbers of the row that will hold the means: low half, high half. */

static uint32_t sum_at(const int16_t *at) { return (uint32_t)(uint16_t)at[0] | (uint32_t)(uint16_t)at[1] << 16; }

static int16_t half(uint32_t v) { return (int16_t)((v & 0xffffu) < 0x8000u ? (int32_t)(v & 0xffffu) : (int32_t)(v & 0xffffu) - 0x10000); }

static void global_avg_pool(arena *m, const op *o, uint32_t y) {
    const op *map = ops + o->source;
    const int16_t *in = map_row(m, map, y);
    const int32_t count = (int32_t)map->height * map->width;
    int16_t *out = m->numbers + slots[o->at];
    uint32_t x, k;
    if (y == 0) memset(out, 0, o->channels * 2 * sizeof *out);
    for (x = 0; x < map->width; x++)
        for (k = 0; k < o->channels; k++) {
            const uint32_t sum = sum_at(out + 2 * k) + (uint32_t)(int32_t)*in++; /* modulo 2^32; the true sum fits */
            out[2 * k] = half(sum);
            out[2 * k + 1] = half(sum >> 16);
        }
    if (y + 1 < map->height) return;
    for (k = 0; k < o->channels; k++) {
        /* total * 2^up / count without 64 bits: whole and rest of total / count are shifted one by one */
        const uint32_t sum = sum_at(out + 2 * k);
        const int32_t total = sum < 0x80000000u ? (int32_t)sum : -(int32_t)(0xffffffffu - sum) - 1;
        const int32_t whole = floor_of(total, count);
        const uint32_t rest = (uint32_t)(total - whole * count);
        const uint32_t more = ((rest << o->shift) + (uint32_t)count / 2) / (uint32_t)count;
        out[k] = saturated(whole * ((int32_t)1 << o->shift) + (int32_t)more);
    }
}
