/* Ops that move values: a copy with replication, channels in any order, maps side by side, nearest upsampling. */

static void move(arena *m, const op *o, number *out, uint32_t y) {
    const op *map = ops + o->source;
    uint32_t x, k, n;
    if (o->kind == CONCAT) {
        for (x = 0; x < o->width; x++)
            for (n = 0; n < o->part_count; n++) {
                map = ops + wide[o->extra + n];
                memcpy(out, map_row(m, map, y) + x * map->channels, map->channels * sizeof *out);
                out += map->channels;
            }
        return;
    }
    for (x = 0; x < o->width; x++) {
        const number *in = map_row(m, map, y / o->stride_y) + x / o->stride_x * map->channels;
        for (k = 0; k < o->channels; k++) *out++ = in[o->kind == SELECT ? (uint32_t)wide[o->extra + k] : k % map->channels];
    }
}
