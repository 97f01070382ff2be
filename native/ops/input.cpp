// Input: uint8 H,W,3 -> H,W,3 or 4, by a table of a byte's value in each channel.
#include <cstring>

#include "ops/op.h"

namespace bcnn {
namespace {

class Input : public Op {
public:
    Input(const Record& r, const Build& build) {
        shape = build.shape();
        const float *scale = r.floats("scale", 3), *offset = r.floats("offset", 3),
                    *intensity = r.floats("intensity", 3);
        for (int c = 0; c < 3; c++)
            for (int u = 0; u < 256; u++) lookup_[c][u] = float(u) * scale[c] + offset[c];
        fourth_ = intensity != nullptr;
        if (fourth_) std::memcpy(intensity_, intensity, sizeof intensity_);
    }
    bool extends() const override { return fourth_; }
    size_t parameter_bytes() const override { return sizeof lookup_; }
    void run(const Task& task) const override {
        const float i0 = intensity_[0], i1 = intensity_[1], i2 = intensity_[2];
        const int period = task.out.view.period;
        for (int y = task.y0; y < task.y1; y++) {
            const uint8_t* from = task.image + size_t(y) * size_t(shape.w) * 3;
            float* to = task.out.floats(y);
            for (int x = 0; x < shape.w; x++, from += 3, to += kLine) {
                const float r = lookup_[0][from[0]], g = lookup_[1][from[1]], b = lookup_[2][from[2]];
                const float pixel[4] = {r, g, b, fourth_ ? r * i0 + g * i1 + b * i2 : 0};
                std::memcpy(to, pixel, sizeof pixel);
                if (fourth_)  // repeated up to the period right here
                    for (int c = 4; c < period; c += 4) std::memcpy(to + c, pixel, sizeof pixel);
            }
        }
    }

private:
    float lookup_[3][256];
    float intensity_[3] = {};
    bool fourth_;
};

const Register input("Input", [](const Record& r, Build& b) { b.add(std::make_unique<Input>(r, b)); });

}  // namespace
}  // namespace bcnn
