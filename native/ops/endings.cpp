#include "ops/endings.h"

#include <cmath>
#include <cstring>

namespace bcnn {
namespace {

// 1 / (1 + e^-v) in the float32 operations that bcnn/program/ops/curves.py lists, one by one.
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
    read(record, build, "Add", "Gate", [&, o = size_t(build.shape().c)](Ending& e, const Record& r) {
        if (e.add || e.gate) {
            e.data.kind = e.add ? EndingKind::add : EndingKind::gate;
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
    });
}

Endings::Fused Endings::fuse(bool negative_zero) {
    Fused fused;
    int last = 0;
    for (; done_ < endings_.size(); done_++) {
        const Ending& e = endings_[done_];
        const bool add = e.add && e.whole;
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
    const auto sum = [](const Ending&, float v, float x) { return v + x; };
    over_rows<EndingStep>(task, in, shape, sum, [&](const Ending& e, const EndingStep& step) {
        if (e.kind != "Sigmoid") return kernels.ending(e.data, step);
        for (int c = task.c0; c < task.c1; c++)
            for (int x = 0; x < shape.w; x++) {
                float& value = step.v[place_of(step.view, c) + ptrdiff_t(x) * kLine];
                value = sigmoid(value);
            }
    });
}

}  // namespace bcnn
