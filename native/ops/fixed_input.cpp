// FixedInput: uint8 H,W,3 -> H,W,3 or 4 in 16 bits, by a table of a byte's value in each channel.
#include <algorithm>
#include <cstring>

#include "ops/op.h"

namespace bcnn {
namespace {

class FixedInput : public Op {
public:
    FixedInput(const Record& r, const Build& build) {
        shape = build.shape();
        const int32_t *scale = r.indices("scale", 3), *offset = r.indices("offset", 3);
        const int16_t* const intensity = r.shorts("intensity", 3);
        const int down = r.number("down");
        for (int c = 0; c < 3; c++)
            for (int u = 0; u < 256; u++) {
                const int64_t wide = int64_t(u) * scale[c] + offset[c] + ((int64_t(1) << down) >> 1);
                lookup_[c][u] = saturated(wide >> down);
            }
        fourth_ = intensity != nullptr;
        if (fourth_) std::memcpy(intensity_, intensity, sizeof intensity_);
    }
    bool extends() const override { return fourth_; }
    size_t parameter_bytes() const override { return sizeof lookup_; }
    void run(const Task& task) const override {
        const int i0 = intensity_[0], i1 = intensity_[1], i2 = intensity_[2];
        const int period = task.out.view.period;
        for (int y = task.y0; y < task.y1; y++) {
            const uint8_t* from = task.image + size_t(y) * size_t(shape.w) * 3;
            int16_t* to = task.out.shorts(y);
            for (int x = 0; x < shape.w; x++, from += 3, to += kShortLine) {
                const int16_t r = lookup_[0][from[0]], g = lookup_[1][from[1]], b = lookup_[2][from[2]];
                const int16_t pixel[4] = {
                    r, g, b, fourth_ ? saturated((r * i0 + g * i1 + b * i2 + (1 << 13)) >> 14) : int16_t(0)};
                std::memcpy(to, pixel, sizeof pixel);
                if (fourth_)  // repeated up to the period right here
                    for (int c = 4; c < period; c += 4) std::memcpy(to + c, pixel, sizeof pixel);
            }
        }
    }

private:
    static int16_t saturated(int64_t v) { return int16_t(std::clamp<int64_t>(v, -32768, 32767)); }
    int16_t lookup_[3][256];
    int16_t intensity_[3] = {};
    bool fourth_;
};

const Register fixed_input("FixedInput", [](const Record& r, Build& b) { b.add(std::make_unique<FixedInput>(r, b)); });

}  // namespace
}  // namespace bcnn
