// An op of the engine: which rows of which maps it reads, its packed parameters, and how it makes rows of its own map.
//
// One file an op in this folder; each registers itself by the name of its class in bcnn/program/ops. A record may
// become several ops: a binary k x k convolution becomes one that makes bits and one that counts them.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/kernels.h"
#include "memory.h"
#include "record.h"

namespace bcnn {

struct Range {
    int begin = 1 << 30, end = -1;
    bool empty() const { return begin >= end; }
    int size() const { return empty() ? 0 : end - begin; }
    void join(Range other) {
        if (other.empty()) return;
        begin = other.begin < begin ? other.begin : begin;
        end = other.end > end ? other.end : end;
    }
};

struct Map {  // where a map is while a step runs
    uint8_t* data = nullptr;
    int rows = 1;     // row y is at slot y % rows
    size_t row = 0;   // bytes from one row to the next
    View view{1, 0};  // maps of values
    template <class Value>
    Value* values(int y) const {
        return reinterpret_cast<Value*>(data + size_t(y % rows) * row);
    }
    float* floats(int y) const { return values<float>(y); }
    int16_t* shorts(int y) const { return values<int16_t>(y); }
    uint32_t* words(int y) const { return values<uint32_t>(y); }
};

struct Task {  // rows y0 to y1 of the map, channels c0 to c1: multiples of kPad, or the end
    int y0, y1, c0, c1;
    const Map* in;  // by slot
    Map out;
    const uint8_t* image;
    uint8_t* scratch;
};

class Op {
public:
    Shape shape{};            // of the map it makes
    int words = 0;            // of a pixel, if its map is bits
    size_t value_bytes = 4;   // of its map: float32, or 2 for int16
    std::vector<int> reads;   // the maps it reads, by slot; a map may be in several
    int record = 0;           // the record it comes from
    std::vector<Shape> from;  // the shapes of the maps it reads, by slot

    virtual ~Op() = default;
    // Rows of the map in `slot` that it needs for row y. Never empty; both ends grow with y.
    virtual Range rows(int slot, int y) const;
    // Channels read from `slot` in whole registers: more than the map has if it is replicated, 0 if they are read one
    // by one.
    virtual int channels(int slot) const { return from[slot].c; }
    virtual bool splits_channels() const { return false; }  // may make some channels of all rows in one step
    virtual bool alone() const { return false; }            // has no part in pulling rows: it reads all of them
    virtual bool extends() const { return false; }          // writes channels up to its map's period by itself
    virtual size_t weight_bytes() const { return 0; }       // read anew for every step
    virtual size_t parameter_bytes() const { return 0; }    // all that it keeps
    virtual size_t scratch_bytes() const { return 0; }
    virtual double row_time() const;  // nanoseconds of one row, roughly: see plan/cost.h
    // What no magnitude of a 16-bit map exceeds, by channel: readers prove by it that their sums fit. None: 32768.
    virtual const std::vector<int>* bound() const { return nullptr; }
    virtual void run(const Task& task) const = 0;

protected:
    int read(int map, const class Build& build);  // adds a slot
};

// What ops are made from, record by record.
class Build {
public:
    Build(const std::vector<Record>& records, const std::vector<Shape>& shapes, const Kernels& kernels);

    const Kernels& kernels;
    const size_t value_bytes;  // of all maps: of float32, or of int16 in a program of integers
    std::vector<std::unique_ptr<Op>> ops;

    const Shape& shape() const { return shapes_[at_]; }            // of the map that the record being read makes
    const Shape& shape(int map) const { return shapes_.at(map); }  // of another record's
    const Shape& made(int op) const { return ops[op]->shape; }
    int op_of(int map) const;  // that makes the map of a record before this one
    int maker(int record) const { return op_of_[record]; }
    int add(std::unique_ptr<Op> op);
    // The op that makes the bits of a record's map, [groups][words] a pixel; ops that ask for the same bits share it.
    int bits_of(int map, int channels, int groups, const float* threshold);
    int bits_of(int map, int channels, int groups, const int16_t* above);

private:
    const std::vector<Shape>& shapes_;
    int at_ = 0;
    std::vector<int> op_of_;
    template <class Value>
    int shared_bits(int map, int channels, int groups, const Value* limit);
    std::map<std::tuple<int, int, std::string>, int> bits_;  // by map, groups, bytes of the limits
};

using Make = std::function<void(const Record&, Build&)>;
struct Register {
    Register(const char* kind, Make make);
};

// Parameters padded to kPad channels.
size_t padded(size_t channels);
Aligned<float> padded_floats(const float* from, size_t count, float fill = 0);  // none if `from` is
Aligned<int16_t> padded_shorts(const int16_t* from, size_t count, int16_t fill = 0);

}  // namespace bcnn
