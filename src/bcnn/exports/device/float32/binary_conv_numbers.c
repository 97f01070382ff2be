/* A bit of a value, and what becomes of a dot: mismatches are (all - dot) / 2, a tap outside the map half of one. */

static int one(number x, parameter threshold) { return x >= threshold; }

static number term(const branch *b, uint32_t k, int32_t dot, int32_t all) {
    const number mismatches = times((number)(all - dot), 0.5f);
    return plus(times(mismatches, value(b->scale, k)), value(b->offset, k));
}
