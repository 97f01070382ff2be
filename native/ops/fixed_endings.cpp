#include "ops/fixed_endings.h"

#include <algorithm>
#include <cstdlib>

#include "plan/cost.h"

namespace bcnn {
namespace {

int16_t saturated(int v) { return int16_t(std::clamp(v, -32768, 32767)); }

// v * 2^up, saturated or rounded.
int shifted(int v, int up) {
    if (up >= 0) return saturated(v * (1 << up));
    return (v + (1 << (-up - 1))) >> -up;
}

}  // namespace

FixedEndings::FixedEndings(const Record& record, const Build& build) {
    const size_t o = size_t(build.shape().c);
    for (const Record& r : record.list_of("after")) {
        Ending e;
        e.kind = r.kind;
        if (r.kind == "FixedAdd" || r.kind == "FixedGate") {
            const int map = r.number("source");
            const Shape& shape = build.shape(map);
            e.slot = int(maps.size());
            e.height = shape.h;
            e.width = shape.w;
            e.channels = shape.c;
            maps.push_back(map);
            of_slot_.push_back(int(endings_.size()));
            if (r.kind == "FixedAdd") {
                e.data.kind = FixedEndingKind::add;
                e.data.bits = r.number("up");
                e.reads = r.number("reads");
                e.first = r.number("first");
                e.whole = e.reads == int(o);
            } else {
                e.data.kind = FixedEndingKind::gate;
                e.data.bits = r.number("down");
            }
        } else if (r.kind == "FixedAffine") {
            e.data.kind = FixedEndingKind::affine;
            e.data.bits = r.number("down");
            e.a = padded_shorts(r.shorts("scale", o), o);
            e.b = padded_shorts(r.shorts("offset", o), o);
        } else if (r.kind == "FixedPReLU") {
            e.data.kind = FixedEndingKind::prelu;
            e.data.bits = r.number("up");
            e.a = padded_shorts(r.shorts("bend", o), o);
        } else if (r.kind == "ReLU") {
            e.data.kind = FixedEndingKind::relu;
        } else if (r.kind == "FixedClip") {
            e.data.kind = FixedEndingKind::clip;
            e.a = padded_shorts(r.shorts("limits", 2), 2);
        } else if (r.kind == "Bound") {
            const int16_t* const limit = r.shorts("limit", o);
            e.data.kind = FixedEndingKind::bound;
            e.a = padded_shorts(limit, o);
            bound_.assign(limit, limit + o);
        } else if (r.kind == "Shift") {
            e.data.kind = FixedEndingKind::shift;
            e.data.bits = r.number("up");
            for (int& limit : bound_)
                limit = std::max(std::abs(shifted(limit, e.data.bits)), std::abs(shifted(-limit, e.data.bits)));
        } else if (r.kind == "FixedSign") {
            e.data.kind = FixedEndingKind::sign;
            e.data.one = r.number("one");
            e.a = padded_shorts(r.shorts("above", o), o);
        } else if (r.kind == "Table") {
            e.data.kind = FixedEndingKind::table;
            e.data.bits = r.number("down");
            e.a = padded_shorts(r.shorts("values", 257), 257);
        } else {
            throw std::invalid_argument("the engine has no ending " + r.kind);
        }
        if (r.kind != "Bound" && r.kind != "Shift") bound_.clear();
        e.data.a = e.a.data();
        e.data.b = e.b.data();
        endings_.push_back(std::move(e));
    }
}

int FixedEndings::channels(int slot) const {
    const Ending& e = endings_[of_slot_[slot]];
    if (e.kind == "FixedGate") return e.channels;
    return e.whole ? e.reads : 0;
}

size_t FixedEndings::parameter_bytes() const {
    size_t bytes = bound_.size() * sizeof(int);
    for (const Ending& e : endings_) bytes += e.a.bytes() + e.b.bytes();
    return bytes;
}

double FixedEndings::row_time() const { return double(endings_.size() - done_) * kFixedValueNs; }

FixedEndings::Fused FixedEndings::fuse(int branches) {
    Fused fused;
    const bool first =
        branches == 1 && shifts_up(done_) && adds(done_ + 1) && is(done_ + 2, "FixedPReLU") && !adds(done_ + 3);
    if (first) fused.end.first_up = endings_[done_++].data.bits;
    while (fused.end.adds < 2 && adds(done_)) fused.slot[fused.end.adds++] = endings_[done_++].slot;
    if (!is(done_, "FixedPReLU")) return fused;
    const Ending& prelu = endings_[done_++];
    fused.end.bend_up = prelu.data.bits;
    fused.end.prelu = prelu.data.bits ? 2 : 1;
    fused.end.bend = prelu.data.a;
    if (fused.end.adds == 2) return fused;
    if (is(done_, "Bound")) {
        const Ending& bound = endings_[done_++];
        fused.end.then = first ? 4 : 1;
        fused.end.limit = bound.data.a;
        // A shift up of what is bounded saturates nowhere.
        const int16_t* const last = bound.a.data() + bound.a.size();
        const int most = *std::max_element(bound.a.data(), last);
        if (shifts_up(done_) && most * (1 << endings_[done_].data.bits) <= 32767)
            fused.end.shift_up = endings_[done_++].data.bits;
    } else if (adds(done_)) {
        fused.end.then = 2;
        fused.slot[2] = endings_[done_++].slot;
    } else if (fused.end.adds == 1 && (first || shifts_up(done_))) {
        fused.end.then = 3;
        if (shifts_up(done_)) fused.end.shift_up = endings_[done_++].data.bits;
    }
    if (fused.end.then >= 3) fused.end.prelu = 2;
    return fused;
}

FixedEndings::Bend FixedEndings::fuse_prelu() {
    if (!is(done_, "FixedPReLU")) return {};
    const Ending& e = endings_[done_++];
    return {e.data.a, e.data.bits};
}

void FixedEndings::run(const Task& task, const Map* in, const Shape& shape, const Kernels& kernels) const {
    const View view = task.out.view;
    for (int y = task.y0; y < task.y1; y++)
        for (size_t i = done_; i < endings_.size(); i++) {
            const Ending& e = endings_[i];
            int16_t* const v = task.out.shorts(y);
            const Map* const other = e.slot >= 0 ? &in[e.slot] : nullptr;
            const int16_t* const row = other ? other->shorts(e.height == 1 ? 0 : y) : nullptr;
            if (e.kind == "FixedAdd" && !e.whole) {
                for (int c = std::max(e.first, task.c0); c < std::min(e.first + e.reads, task.c1); c++) {
                    int16_t* to = v + place_of<int16_t>(view, c);
                    const int16_t* from = row + place_of<int16_t>(other->view, (c - e.first) % e.channels);
                    for (int x = 0; x < shape.w; x++, to += kShortLine, from += kShortLine)
                        *to = saturated(*to + shifted(*from, e.data.bits));
                }
                continue;
            }
            FixedEndingStep step{v,          view, shape.w, task.c0, task.c1, row, other ? other->view : view,
                                 kShortLine, false};
            if (e.kind == "FixedGate") {
                step.other_step = e.width == 1 ? 0 : kShortLine;
                step.other_channel = e.channels == 1;
            }
            kernels.fixed.ending(e.data, step);
        }
}

}  // namespace bcnn
