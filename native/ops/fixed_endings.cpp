#include "ops/endings.h"

#include <cstdlib>

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
    read(record, build, "FixedAdd", "FixedGate", [&](Ending& e, const Record& r) {
        if (e.add || e.gate) {
            e.data.kind = e.add ? FixedEndingKind::add : FixedEndingKind::gate;
            e.data.bits = r.number(e.add ? "up" : "down");
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
    });
}

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
    const auto sum = [](const Ending& e, int16_t v, int16_t x) { return saturated(v + shifted(x, e.data.bits)); };
    over_rows<FixedEndingStep>(task, in, shape, sum, [&](const Ending& e, const FixedEndingStep& step) {
        kernels.fixed.ending(e.data, step);
    });
}

}  // namespace bcnn
