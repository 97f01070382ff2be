// For the benchmark: what the innermost loop reaches, and what xor and popcount could. Nothing in the engine calls
// this.

// Binary MACs done by `repeats` rounds of the innermost loop; with 0 repeats, makes the random data that they work on.
static double dot_peak(int repeats, uint8_t* scratch) {
    constexpr int k = 224;  // seven words: weights and bits stay in L1
    const size_t bytes = bits_bytes(k), w_group = weight_bytes(k);
    uint8_t* const w = scratch + kBlock * most_counted * sizeof(Wide);
    uint8_t* const bits = w + tile_groups * w_group;
    if (repeats == 0) {
        float values[k / kLine][tile_pixels][kLine], thresholds[k] = {};
        uint32_t random = 1;
        const auto next = [&random] { return random = random * 1664525u + 1013904223u; };
        for (size_t i = 0; i < tile_groups * w_group; i++) w[i] = uint8_t(next() >> 28);
        for (int t = 0; t < tile_pixels; t++)
            for (int c = 0; c < k; c++) values[c / kLine][t][c % kLine] = float(int32_t(next()));
        sign_pack(&values[0][0][0], tile_pixels, {k, tile_pixels * kLine}, thresholds, bits, bytes);
    }
    for (int r = 0; r < repeats; r++)
        dot<tile_pixels, tile_groups>(bits, bytes, w, w_group, (Narrow*)scratch, most_counted);
    return double(repeats) * tile_pixels * tile_groups * group * k;
}

// Binary MACs done by `repeats` rounds of xor, popcount and add on registers alone: no loads, no sums that are ever
// widened. What a dot product that counts bits the usual way could reach at the very best.
static double popcount_peak(int repeats) {
    constexpr int sums = 4;  // enough that none waits for the one before it, few enough for the registers
    Bits x = bits_of(0x5A0FC396u), w = bits_of(0x13579BDFu), sum[sums];
    for (int i = 0; i < sums; i++) sum[i] = bits_of(0);
    for (int r = 0; r < repeats; r++)
        for (int i = 0; i < sums; i++) {
            x = hidden(x);
            sum[i] = count_differing(sum[i], x, w);
        }
    for (int i = 0; i < sums; i++) sum[i] = hidden(sum[i]);
    return double(repeats) * sums * 8 * sizeof(Bits);
}

static constexpr size_t peak_scratch = kBlock * most_counted * sizeof(Wide) + 256 * 1024;
