#include "ops/op.h"

#include <algorithm>

#include "plan/cost.h"

namespace bcnn {
namespace {

std::map<std::string, Make>& makers() {
    static std::map<std::string, Make> all;
    return all;
}

}  // namespace

Register::Register(const char* kind, Make make) { makers()[kind] = std::move(make); }

Range Op::rows(int, int y) const { return {y, y + 1}; }

double Op::row_time() const { return double(shape.w) * shape.c * kValueNs; }

int Op::read(int map, const Build& build) {
    reads.push_back(build.op_of(map));
    from.push_back(build.shape(map));
    return int(reads.size()) - 1;
}

Build::Build(const std::vector<Record>& records, const std::vector<Shape>& shapes, const Kernels& kernels_in)
    : kernels(kernels_in), value_bytes(!records.empty() && records[0].kind == "FixedInput" ? 2 : 4), shapes_(shapes) {
    if (records.empty() || records.size() != shapes.size())
        throw std::invalid_argument("an engine needs ops and as many shapes");
    for (const Record& record : records) {
        const auto make = makers().find(record.kind);
        if (make == makers().end()) throw std::invalid_argument("the engine has no op " + record.kind);
        make->second(record, *this);
        op_of_.push_back(int(ops.size()) - 1);
        at_++;
    }
}

int Build::op_of(int map) const {
    if (map < 0 || map >= at_) throw std::invalid_argument("an op reads a map that is not made before it");
    return op_of_[map];
}

int Build::add(std::unique_ptr<Op> op) {
    op->record = at_;
    op->value_bytes = value_bytes;
    ops.push_back(std::move(op));
    return int(ops.size()) - 1;
}

size_t padded(size_t channels) { return (channels + kPad - 1) / kPad * kPad; }

namespace {

template <class Value>
Aligned<Value> padded_values(const Value* from, size_t count, Value fill) {
    if (!from) return Aligned<Value>();
    Aligned<Value> to(padded(count));
    std::copy(from, from + count, to.data());
    std::fill(to.data() + count, to.data() + to.size(), fill);
    return to;
}

}  // namespace

Aligned<float> padded_floats(const float* from, size_t count, float fill) { return padded_values(from, count, fill); }
Aligned<int16_t> padded_shorts(const int16_t* from, size_t count, int16_t fill) {
    return padded_values(from, count, fill);
}

}  // namespace bcnn
