static int equal(int16_t made, int16_t other) { return made == other; }
