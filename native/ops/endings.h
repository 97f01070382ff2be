// What follows the sums of an op: the list `after` of its record, as bcnn/program/ops/endings.py and curves.py define it,
// of floats (`Endings`) and of 16-bit numbers (`FixedEndings`).
//
// Kernels do the first of them in registers where they are what networks use (`fuse`); `run` does the rest over the rows
// made.
#pragma once
#include <algorithm>

#include "ops/op.h"
#include "plan/cost.h"

namespace bcnn {

// What both have: endings whose parameters are `Value`s, as kernels read them in `Data`.
template <class Value, class Data>
class EndingList {
public:
    std::vector<int> maps;  // that endings read, by slot, counted from the first that is the endings'
    Range rows(int slot, int y) const { return endings_[of_slot_[slot]].height == 1 ? Range{0, 1} : Range{y, y + 1}; }
    int channels(int slot) const {
        const Ending& e = endings_[of_slot_[slot]];
        return e.gate ? e.channels : e.whole ? e.reads : 0;
    }
    size_t parameter_bytes() const {
        size_t bytes = bound_.size() * sizeof(int);
        for (const Ending& e : endings_) bytes += e.a.bytes() + e.b.bytes();
        return bytes;
    }
    double row_time() const {
        return double(endings_.size() - done_) * (sizeof(Value) == 4 ? kValueNs : kFixedValueNs);
    }
    // By channel, what no magnitude exceeds, if the last ending is a Bound, or a shift after one.
    const std::vector<int>* bound() const { return bound_.empty() ? nullptr : &bound_; }

protected:
    struct Ending {
        std::string kind;
        Data data{};
        bool add = false, gate = false;
        bool whole = false;  // Add: to all channels
        int slot = -1, height = 1, width = 1, channels = 0, reads = 0, first = 0;
        bool negative = false;  // PReLU: some slope is
        Aligned<Value> a, b;
    };

    // An ending that reads a map.
    void add_map(Ending& e, const Record& r, const Build& build, bool add) {
        const int map = r.number("source");
        const Shape& shape = build.shape(map);
        e.slot = int(maps.size());
        e.height = shape.h;
        e.width = shape.w;
        e.channels = shape.c;
        (add ? e.add : e.gate) = true;
        if (add) {
            e.reads = r.number("reads");
            e.first = r.number("first");
            e.whole = e.reads == build.shape().c;
        }
        maps.push_back(map);
        of_slot_.push_back(int(endings_.size()));
    }
    // Every ending of a record, its parameters by `parameters(e, record)`.
    template <class Parameters>
    void read(const Record& op, const Build& build, const char* add, const char* gate, const Parameters& parameters) {
        for (const Record& r : op.list_of("after")) {
            Ending e;
            e.kind = r.kind;
            if (r.kind == add || r.kind == gate) add_map(e, r, build, r.kind == add);
            parameters(e, r);
            e.data.a = e.a.data();
            e.data.b = e.b.data();
            endings_.push_back(std::move(e));
        }
    }

    // Those that are left, over the rows of a task; `in` is the first of the endings' slots. `sum(e, v, x)` adds a value of
    // a map that is added in part, `apply(e, step)` does what remains.
    template <class Step, class Sum, class Apply>
    void over_rows(const Task& task, const Map* in, const Shape& shape, const Sum& sum, const Apply& apply) const {
        constexpr int line = line_of<Value>;
        const View view = task.out.view;
        for (int y = task.y0; y < task.y1; y++)
            for (size_t i = done_; i < endings_.size(); i++) {
                const Ending& e = endings_[i];
                Value* const v = task.out.values<Value>(y);
                const Map* const other = e.slot >= 0 ? &in[e.slot] : nullptr;
                const Value* const row = other ? other->values<Value>(e.height == 1 ? 0 : y) : nullptr;
                if (e.add && !e.whole) {
                    for (int c = std::max(e.first, task.c0); c < std::min(e.first + e.reads, task.c1); c++) {
                        Value* to = v + place_of<Value>(view, c);
                        const Value* from = row + place_of<Value>(other->view, (c - e.first) % e.channels);
                        for (int x = 0; x < shape.w; x++, to += line, from += line) *to = sum(e, *to, *from);
                    }
                    continue;
                }
                const int other_step = e.gate && e.width == 1 ? 0 : line;
                const bool other_channel = e.gate && e.channels == 1;
                apply(e, Step{v, view, shape.w, task.c0, task.c1, row, other ? other->view : view, other_step,
                              other_channel});
            }
    }

    std::vector<Ending> endings_;
    std::vector<int> of_slot_;  // the ending that a slot belongs to
    std::vector<int> bound_;
    size_t done_ = 0;  // that are done in registers
};

class Endings : public EndingList<float, EndingData> {
public:
    Endings(const Record& record, const Build& build);
    void run(const Task& task, const Map* in, const Shape& shape, const Kernels& kernels) const;

    struct Fused {
        int end = 0;             // kernels.h: End
        int slot[2] = {-1, -1};  // of the maps added
        const float* slope[2] = {nullptr, nullptr};
    };
    // Takes the endings at the front that `finish` can do, in the order add, PReLU, add, PReLU. `negative_zero`: -0.0
    // may come in.
    Fused fuse(bool negative_zero);
    // A PReLU at the front, for kernels that do just that.
    const float* fuse_prelu();
};

class FixedEndings : public EndingList<int16_t, FixedEndingData> {
public:
    FixedEndings(const Record& record, const Build& build);
    void run(const Task& task, const Map* in, const Shape& shape, const Kernels& kernels) const;

    struct Fused {
        FixedEnd end{};
        int slot[3] = {-1, -1, -1};  // of the maps added
    };
    // Takes the endings at the front that kernels can do after the sums of so many branches: up to two maps added, a PReLU,
    // and a bound with a shift up, or another map, or, after one map, a shift up; before one map, a shift up.
    Fused fuse(int branches);
    struct Bend {
        const int16_t* bend = nullptr;
        int up = 0;
    };
    Bend fuse_prelu();  // a PReLU at the front, for kernels that do just that

private:
    bool is(size_t index, const char* kind) const { return index < endings_.size() && endings_[index].kind == kind; }
    bool adds(size_t index) const {  // a whole map as it is
        return is(index, "FixedAdd") && endings_[index].whole && endings_[index].data.bits == 0;
    }
    bool shifts_up(size_t index) const { return is(index, "Shift") && endings_[index].data.bits > 0; }
};

// An op of one source with endings.
template <class List>
class EndedOp : public Op {
public:
    const std::vector<int>* bound() const override { return endings_.bound(); }

protected:
    EndedOp(const Record& r, const Build& build) : kernels_(build.kernels), endings_(r, build) {
        shape = build.shape();
        read(r.number("source"), build);
        for (const int map : endings_.maps) read(map, build);
    }
    void finish(const Task& task) const { endings_.run(task, task.in + 1, shape, kernels_); }

    const Kernels& kernels_;
    List endings_;
};

}  // namespace bcnn
