// Endings of integer programs that no kernel did in registers, over a row of the map made.

template <class Each>
BCNN_INLINE void each_short(const FixedEndingStep& s, const Each& each) {
    for (int c = s.channel_begin; c < s.channel_end; c += short_lanes) {
        int16_t* v = s.v + place_of<int16_t>(s.view, c);
        for (int p = 0; p < s.pixels; p++, v += kShortLine) store(v, each(load(v), c, p));
    }
}

static void fixed_add(const FixedEndingData& d, const FixedEndingStep& s) {
    each_short(s, [&](Shorts v, int c, int p) __attribute__((always_inline)) {
        const int16_t* const from = s.other + place_of<int16_t>(s.other_view, c % s.other_view.period);
        return plus(v, shifted(load(from + ptrdiff_t(p) * s.other_step), d.bits));
    });
}

static void fixed_gate(const FixedEndingData& d, const FixedEndingStep& s) {
    each_short(s, [&](Shorts v, int c, int p) __attribute__((always_inline)) {
        const int16_t* const from = s.other + ptrdiff_t(p) * s.other_step;
        return scaled(v, s.other_channel ? broadcast_short(*from) : load(from + place_of<int16_t>(s.other_view, c)),
                      d.bits);
    });
}

// A curve by straight lines between 257 values.
BCNN_INLINE int16_t on_curve(const int16_t* values, int v, int down) {
    const int half = 128 << down, w = v < -half ? -half : v > half - 1 ? half - 1 : v;
    const int at = (w >> down) + 128, rest = w - (at - 128) * (1 << down);
    const int step = (values[at + 1] - values[at]) * rest + ((1 << down) >> 1);
    return saturated(values[at] + (step >> down));
}

static void fixed_ending(const FixedEndingData& d, const FixedEndingStep& s) {
    switch (d.kind) {
        case FixedEndingKind::add: fixed_add(d, s); break;
        case FixedEndingKind::gate: fixed_gate(d, s); break;
        case FixedEndingKind::affine:
            if (d.a)
                each_short(s, [&](Shorts v, int c, int)
                                  __attribute__((always_inline)) { return scaled(v, load(d.a + c), d.bits); });
            if (d.b)
                each_short(s,
                           [&](Shorts v, int c, int) __attribute__((always_inline)) { return plus(v, load(d.b + c)); });
            break;
        case FixedEndingKind::prelu:
            each_short(s, [&](Shorts v, int c, int) __attribute__((always_inline)) {
                const Shorts bend = load(d.a + c);
                return d.bits ? bent(v, bend, amount(d.bits), broadcast_short(-(32768 >> d.bits))) : straight(v, bend);
            });
            break;
        case FixedEndingKind::relu:
            each_short(
                s, [&](Shorts v, int, int) __attribute__((always_inline)) { return larger(v, broadcast_short(0)); });
            break;
        case FixedEndingKind::clip:
            each_short(s, [&](Shorts v, int, int) __attribute__((always_inline)) {
                return smaller(larger(v, broadcast_short(d.a[0])), broadcast_short(d.a[1]));
            });
            break;
        case FixedEndingKind::bound:
            each_short(s, [&](Shorts v, int c, int) __attribute__((always_inline)) {
                const Shorts limit = load(d.a + c);
                return smaller(larger(v, subtract(broadcast_short(0), limit)), limit);
            });
            break;
        case FixedEndingKind::shift:
            each_short(s, [&](Shorts v, int, int) __attribute__((always_inline)) { return shifted(v, d.bits); });
            break;
        case FixedEndingKind::sign:
            each_short(s, [&](Shorts v, int c, int) __attribute__((always_inline)) {
                return if_above(v, load(d.a + c), broadcast_short(d.one), broadcast_short(-d.one));
            });
            break;
        case FixedEndingKind::table:
            for (int c = s.channel_begin; c < s.channel_end; c++) {
                int16_t* v = s.v + place_of<int16_t>(s.view, c);
                for (int p = 0; p < s.pixels; p++, v += kShortLine) *v = on_curve(d.a, *v, d.bits);
            }
            break;
    }
}
