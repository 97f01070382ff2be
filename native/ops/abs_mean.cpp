// AbsMean: the mean magnitude of a pixel's channels.
#include <cmath>

#include "ops/op.h"

namespace bcnn {
namespace {

class AbsMean : public Op {
public:
    AbsMean(const Record& r, const Build& build) {
        shape = build.shape();
        read(r.number("source"), build);
    }
    int channels(int) const override { return 0; }
    void run(const Task& task) const override {
        const View in = task.in[0].view;
        const float share = float(1 / double(from[0].c));
        for (int y = task.y0; y < task.y1; y++) {
            const float* x = task.in[0].floats(y);
            float* out = task.out.floats(y);
            for (int p = 0; p < shape.w; p++, x += kLine, out += kLine) {
                float sum = std::fabs(x[place_of(in, 0)]);
                for (int c = 1; c < from[0].c; c++) sum += std::fabs(x[place_of(in, c)]);
                out[place_of(task.out.view, 0)] = sum * share;
            }
        }
    }
};

const Register abs_mean("AbsMean", [](const Record& r, Build& b) { b.add(std::make_unique<AbsMean>(r, b)); });

}  // namespace
}  // namespace bcnn
