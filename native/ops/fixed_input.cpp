// FixedInput: uint8 H,W,3 -> H,W,3 or 4 in 16 bits, by a table of a byte's value in each channel.
#include <algorithm>

#include "ops/op.h"

namespace bcnn {
namespace {

class FixedInput : public Op {
public:
    FixedInput(const Record& r, const Build& build) : kernels_(build.kernels) {
        shape = build.shape();
        const int32_t *scale = r.indices("scale", 3), *offset = r.indices("offset", 3);
        const int16_t* const intensity = r.shorts("intensity", 3);
        const int down = r.number("down");
        int16_t lookup[3][256];
        for (int c = 0; c < 3; c++)
            for (int u = 0; u < 256; u++) {
                const int64_t wide = int64_t(u) * scale[c] + offset[c] + ((int64_t(1) << down) >> 1);
                lookup[c][u] = saturated(wide >> down);
            }
        fourth_ = intensity != nullptr;
        for (int c = 0; c < 3; c++)
            for (int u = 0; u < 256; u++) {
                parts_[c][u][c] = lookup[c][u] * (1 << 14);
                parts_[c][u][3] = fourth_ ? lookup[c][u] * intensity[c] + (c ? 0 : 1 << 13) : 0;
            }
        int64_t most = 1 << 13;  // of the intensity's sum
        for (int c = 0; c < 3; c++) {
            const auto [least, largest] = std::minmax_element(lookup[c], lookup[c] + 256);
            bound_.push_back(std::max(-int(*least), int(*largest)));
            if (fourth_) most += int64_t(bound_[c]) * (intensity[c] < 0 ? -intensity[c] : intensity[c]);
        }
        if (fourth_) bound_.push_back(int(std::min<int64_t>((most >> 14) + 1, 32768)));
    }
    bool extends() const override { return fourth_; }
    const std::vector<int>* bound() const override { return &bound_; }
    size_t parameter_bytes() const override { return sizeof parts_; }
    void run(const Task& task) const override {
        const int copies = fourth_ ? task.out.view.period / 4 : 1;  // repeated up to the period right here
        for (int y = task.y0; y < task.y1; y++) {
            const uint8_t* const from = task.image + size_t(y) * size_t(shape.w) * 3;
            kernels_.fixed.input(parts_, from, shape.w, copies, task.out.shorts(y));
        }
    }

private:
    static int16_t saturated(int64_t v) { return int16_t(std::clamp<int64_t>(v, -32768, 32767)); }
    const Kernels& kernels_;
    alignas(16) int32_t parts_[3][256][4] = {};
    std::vector<int> bound_;
    bool fourth_;
};

const Register fixed_input("FixedInput", [](const Record& r, Build& b) { b.add(std::make_unique<FixedInput>(r, b)); });

}  // namespace
}  // namespace bcnn
