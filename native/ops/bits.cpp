// The bits of a map, x >= threshold (or x > above in 16 bits), for binary convolutions that read more than one pixel. No op of a program: made
// where one asks for it. A pixel is [groups][words(K / G)], tail bits zero.
#include <cstring>
#include <limits>
#include <string>

#include "ops/op.h"
#include "plan/cost.h"

namespace bcnn {
namespace {

// What no value reaches: bits past the channels are 0.
Aligned<float> padded_limits(const float* limit, size_t count) {
    return padded_floats(limit, count, std::numeric_limits<float>::quiet_NaN());
}
Aligned<int16_t> padded_limits(const int16_t* limit, size_t count) { return padded_shorts(limit, count, 32767); }

void sign_words(const Kernels& k, const float* x, View v, int pixels, const float* limit, int words, uint32_t* out) {
    k.sign_words(x, v, pixels, limit, words, out);
}
void sign_words(const Kernels& k, const int16_t* x, View v, int pixels, const int16_t* limit, int words,
                uint32_t* out) {
    k.fixed.sign_words(x, v, pixels, limit, words, out);
}

template <class Value>
class Bits : public Op {
public:
    Bits(int source, int channels, int groups, const Value* limit, const Shape& map, const Kernels& kernels)
        : kernels_(kernels),
          channels_(channels),
          groups_(groups),
          plain_((channels + 31) / 32),
          inner_((channels / groups + 31) / 32) {
        shape = map;
        words = groups * inner_;
        reads = {source};
        from = {map};
        limit_ = padded_limits(limit, size_t(channels));
    }
    int channels(int) const override { return channels_; }
    size_t parameter_bytes() const override { return limit_.bytes(); }
    size_t scratch_bytes() const override { return gaps() ? size_t(shape.w) * size_t(plain_) * 4 : 0; }
    double row_time() const override {
        return double(shape.w) * channels_ * (sizeof(Value) == 4 ? kSignNs : kFixedSignNs);
    }
    void run(const Task& task) const override {
        for (int y = task.y0; y < task.y1; y++) {
            uint32_t* const out = task.out.words(y);
            uint32_t* const plain = gaps() ? reinterpret_cast<uint32_t*>(task.scratch) : out;
            sign_words(kernels_, task.in[0].values<Value>(y), task.in[0].view, shape.w, limit_.data(), plain_, plain);
            if (gaps())
                for (int x = 0; x < shape.w; x++)
                    regroup(plain + size_t(x) * size_t(plain_), out + size_t(x) * size_t(words));
        }
    }

private:
    bool gaps() const { return groups_ > 1 && channels_ / groups_ % 32; }  // groups begin in the middle of words
    void regroup(const uint32_t* from, uint32_t* to) const {
        std::memset(to, 0, size_t(words) * 4);
        const int inner = channels_ / groups_;
        for (int g = 0, k = 0; g < groups_; g++)
            for (int i = 0; i < inner; i++, k++) to[g * inner_ + i / 32] |= (from[k / 32] >> (k % 32) & 1) << (i % 32);
    }

    const Kernels& kernels_;
    const int channels_, groups_, plain_, inner_;
    Aligned<Value> limit_;
};

}  // namespace

template <class Value>
int Build::shared_bits(int map, int channels, int groups, const Value* limit) {
    std::tuple<int, int, std::string> key(
        map, groups, std::string(reinterpret_cast<const char*>(limit), size_t(channels) * sizeof(Value)));
    const auto found = bits_.find(key);
    if (found != bits_.end()) return found->second;
    const int op = add(std::make_unique<Bits<Value>>(op_of(map), channels, groups, limit, shape(map), kernels));
    bits_.emplace(std::move(key), op);
    return op;
}

int Build::bits_of(int map, int channels, int groups, const float* threshold) {
    return shared_bits(map, channels, groups, threshold);
}
int Build::bits_of(int map, int channels, int groups, const int16_t* above) {
    return shared_bits(map, channels, groups, above);
}

}  // namespace bcnn
