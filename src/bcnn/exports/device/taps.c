/* Where a tap is: the pixel of the source, or 0 if it is outside. */
static const number *tap(const arena *m, const op *map, int32_t y, int32_t x) {
    if (y < 0 || y >= map->height || x < 0 || x >= map->width) return 0;
    return map_row(m, map, (uint32_t)y) + (uint32_t)x * map->channels;
}
