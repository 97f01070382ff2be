/* Rows are pulled by the last op: what it lacks is made first, and so on down to the next row of the image. */

static uint32_t rows_made(const arena *m, uint32_t i) {
    if (ops[i].kind == CONSTANT) return ops[i].height;
    if (ops[i].kind == GLOBAL_AVG_POOL) return m->made[i] == ops[i].steps;
    if (ops[i].kind == BY_ROWS) {
        const int32_t n = m->made[i] + ops[i].top - ops[i].kernel_y; /* of the last row that has all its taps */
        if (m->made[i] >= ops[ops[i].source].height) return ops[i].height;
        return n < 0 ? 0 : (uint32_t)n / ops[i].stride_y + 1 < ops[i].height ? (uint32_t)n / ops[i].stride_y + 1 : ops[i].height;
    }
    return m->made[i];
}

/* The map that lacks a row before the next step of op i can be made; i itself if none does. */
static uint32_t lacking(const arena *m, uint32_t i) {
    const op *o = ops + i;
    uint32_t n;
    for (n = 0; n < o->need_count; n++) {
        const need *r = needs + o->needs + n;
        int32_t rows = (int32_t)((uint32_t)m->made[i] * r->mul / r->div) + r->add;
        if (rows > (int32_t)r->most) rows = r->most;
        if (rows > (int32_t)rows_made(m, r->map)) return r->map;
    }
    return i;
}

static void pull(arena *m) {
    while (m->made[OPS - 1] < ops[OPS - 1].steps) {
        uint32_t i = OPS - 1, next;
        while (i && (next = lacking(m, i)) != i) i = next;
        if (!i) return; /* the image's next row is missing */
        step(m, ops + i, m->made[i]);
        m->made[i]++;
    }
}
