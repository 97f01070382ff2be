// Endings that no kernel did in registers, over a row of the map made. Each is one rounding an operation, and a float
// that was stored and loaded is the same float: so this equals doing them in registers.

template <class Each>
BCNN_INLINE void each_value(const EndingStep& s, const Each& each) {
    for (int c = s.channel_begin; c < s.channel_end; c += lanes) {
        float* v = s.v + place_of(s.view, c);
        for (int p = 0; p < s.pixels; p++, v += kLine) store(v, each(load(v), c, p));
    }
}

// A map of as many channels, or replicated: its period is a multiple of a register.
static void add_map(const EndingStep& s) {
    each_value(s, [&](Floats v, int c, int p) __attribute__((always_inline)) {
        return add(load(s.other + place_of(s.other_view, c % s.other_view.period) + ptrdiff_t(p) * s.other_step), v);
    });
}

static void gate(const EndingStep& s) {
    if (s.other_channel)
        each_value(s, [&](Floats v, int, int p) __attribute__((always_inline)) {
            return mul(v, broadcast(s.other[ptrdiff_t(p) * s.other_step]));
        });
    else
        each_value(s, [&](Floats v, int c, int p) __attribute__((always_inline)) {
            return mul(v, load(s.other + place_of(s.other_view, c) + ptrdiff_t(p) * s.other_step));
        });
}

static void ending(const EndingData& d, const EndingStep& s) {
    switch (d.kind) {
        case EndingKind::add: add_map(s); break;
        case EndingKind::gate: gate(s); break;
        case EndingKind::affine:
            if (d.a)
                each_value(s,
                           [&](Floats v, int c, int) __attribute__((always_inline)) { return mul(v, load(d.a + c)); });
            if (d.b)
                each_value(s,
                           [&](Floats v, int c, int) __attribute__((always_inline)) { return add(v, load(d.b + c)); });
            break;
        case EndingKind::prelu:
            each_value(
                s, [&](Floats v, int c, int) __attribute__((always_inline)) { return exact_prelu(v, load(d.a + c)); });
            break;
        case EndingKind::relu:
            each_value(s, [&](Floats v, int, int)
                              __attribute__((always_inline)) { return if_less(v, broadcast(0), broadcast(0), v); });
            break;
        case EndingKind::clip:
            each_value(s, [&](Floats v, int, int) __attribute__((always_inline)) {
                const Floats low = broadcast(d.a[0]), high = broadcast(d.a[1]);
                v = if_less(v, low, low, v);
                return if_less(high, v, high, v);
            });
            break;
        case EndingKind::sign:
            each_value(s, [&](Floats v, int c, int) __attribute__((always_inline)) {
                return if_at_least(v, load(d.a + c), broadcast(1), broadcast(-1));
            });
            break;
    }
}
