/* Row y of a map, between the step that makes it and the last one that reads it. */
static const number *map_row(const arena *m, const op *map, uint32_t y) {
    if (map->kind == CONSTANT) return numbers + map->at + y * ((uint32_t)map->width * map->channels);
    return m->numbers + slots[map->at + y];
}
