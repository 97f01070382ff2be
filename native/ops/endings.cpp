#include "ops/endings.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "plan/cost.h"

namespace bcnn {
namespace {

// 1 / (1 + e^-v) in the float32 operations that bcnn/program/ops/endings.py lists, one by one.
float sigmoid(float v) {
    const float big = 1.5f * 8388608;
    float z = -v;
    z = z < -87 ? -87 : z;
    z = z > 87 ? 87 : z;
    const float k = (z * float(1.4426950408889634) + big) - big;
    const float r = (z - k * float(0.693145751953125)) - k * float(1.428606765330187e-06);
    float e = r * float(1.0 / 720) + float(1.0 / 120);
    for (const double factor : {1.0 / 24, 1.0 / 6, 1.0 / 2, 1.0, 1.0}) e = e * r + float(factor);
    const uint32_t bits = uint32_t((std::isnan(k) ? 0 : int(k)) + 127) << 23;
    float power;
    std::memcpy(&power, &bits, 4);
    return 1 / (1 + e * power);
}

}  // namespace

Endings::Endings(const Record& record, const Build& build) {
    const size_t o = size_t(build.shape().c);
    for (const Record& r : record.list_of("after")) {
        Ending e;
        e.kind = r.kind;
        if (r.kind == "Add" || r.kind == "Gate") {
            const int map = r.number("source");
            const Shape& shape = build.shape(map);
            e.slot = int(maps.size());
            e.height = shape.h;
            e.width = shape.w;
            e.channels = shape.c;
            maps.push_back(map);
            of_slot_.push_back(int(endings_.size()));
            e.data.kind = r.kind == "Add" ? EndingKind::add : EndingKind::gate;
            if (r.kind == "Add") {
                e.reads = r.number("reads");
                e.first = r.number("first");
                e.whole = e.reads == int(o);
            }
        } else if (r.kind == "Affine") {
            e.data.kind = EndingKind::affine;
            e.a = padded_floats(r.floats("scale", o), o);
            e.b = padded_floats(r.floats("offset", o), o);
        } else if (r.kind == "PReLU") {
            const float* const slope = r.floats("slope", o);
            e.data.kind = EndingKind::prelu;
            e.a = padded_floats(slope, o);
            e.negative = std::any_of(slope, slope + o, [](float s) { return s < 0; });
        } else if (r.kind == "ReLU") {
            e.data.kind = EndingKind::relu;
        } else if (r.kind == "Clip") {
            e.data.kind = EndingKind::clip;
            e.a = padded_floats(r.floats("limits", 2), 2);
        } else if (r.kind == "Sign") {
            e.data.kind = EndingKind::sign;
            e.a = padded_floats(r.floats("threshold", o), o);
        } else if (r.kind != "Sigmoid") {
            throw std::invalid_argument("the engine has no ending " + r.kind);
        }
        e.data.a = e.a.data();
        e.data.b = e.b.data();
        endings_.push_back(std::move(e));
    }
}

int Endings::channels(int slot) const {
    const Ending& e = endings_[of_slot_[slot]];
    if (e.kind == "Gate") return e.channels;
    return e.whole ? e.reads : 0;
}

size_t Endings::parameter_bytes() const {
    size_t bytes = 0;
    for (const Ending& e : endings_) bytes += e.a.bytes() + e.b.bytes();
    return bytes;
}

double Endings::row_time() const { return double(endings_.size() - done_) * kValueNs; }

Endings::Fused Endings::fuse(bool negative_zero) {
    Fused fused;
    int last = 0;
    for (; done_ < endings_.size(); done_++) {
        const Ending& e = endings_[done_];
        const bool add = e.kind == "Add" && e.whole;
        // A kernel's PReLU takes -0.0 for negative: harmless but for a negative slope. Another PReLU may have made one.
        const bool prelu = e.kind == "PReLU" && !((negative_zero || fused.end & prelu_first) && e.negative);
        if (!add && !prelu) break;
        const int end = add ? (last < add_first    ? add_first
                               : last < add_second ? add_second
                                                   : 0)
                            : (last < prelu_first    ? prelu_first
                               : last < prelu_second ? prelu_second
                                                     : 0);
        if (!end) break;
        fused.end |= last = end;
        const int second = end == add_second || end == prelu_second;
        if (add)
            fused.slot[second] = e.slot;
        else
            fused.slope[second] = e.data.a;
    }
    return fused;
}

const float* Endings::fuse_prelu() {
    if (done_ < endings_.size() && endings_[done_].kind == "PReLU") return endings_[done_++].data.a;
    return nullptr;
}

void Endings::run(const Task& task, const Map* in, const Shape& shape, const Kernels& kernels) const {
    const View view = task.out.view;
    for (int y = task.y0; y < task.y1; y++)
        for (size_t i = done_; i < endings_.size(); i++) {
            const Ending& e = endings_[i];
            float* const v = task.out.floats(y);
            if (e.kind == "Sigmoid") {
                for (int c = task.c0; c < task.c1; c++)
                    for (int x = 0; x < shape.w; x++) {
                        float& value = v[place_of(view, c) + ptrdiff_t(x) * kLine];
                        value = sigmoid(value);
                    }
                continue;
            }
            const Map* const other = e.slot >= 0 ? &in[e.slot] : nullptr;
            const float* const row = other ? other->floats(e.height == 1 ? 0 : y) : nullptr;
            if (e.kind == "Add" && !e.whole) {
                for (int c = std::max(e.first, task.c0); c < std::min(e.first + e.reads, task.c1); c++) {
                    float* to = v + place_of(view, c);
                    const float* from = row + place_of(other->view, (c - e.first) % e.channels);
                    for (int x = 0; x < shape.w; x++, to += kLine, from += kLine) *to += *from;
                }
                continue;
            }
            EndingStep step{v, view, shape.w, task.c0, task.c1, row, other ? other->view : view, kLine, false};
            if (e.kind == "Gate") {
                step.other_step = e.width == 1 ? 0 : kLine;
                step.other_channel = e.channels == 1;
            }
            kernels.ending(e.data, step);
        }
}

}  // namespace bcnn
