// When each row of each map is made, and where it lives. Computed once when an engine is made, in four steps: cost.h
// and cut.cpp weigh and choose segments, place.cpp finds room for maps, schedule.cpp lists the steps.
//
// Inside a segment rows are pulled: the last op asks for its next row, each op asks the ones it reads for the rows it
// needs, and a map between two ops is a ring of just the rows that are still to be read. Between segments maps are
// whole. So early levels, with large maps and few weights, flow row by row through the cache, and late levels, where
// weights outgrow it, run op by op. (Cutting rows into strips of columns that stay in L1 from one op to the next was
// measured: no gain.)
//
// A segment is split into shares that can run at the same time: ranges of rows, each with its own rings (rows near the
// cut are made by both sides), or ranges of channels where the segment is a single op. Every value is computed the same
// way in every split.
//
// All sizes are bytes. Time and memory grow with the number of ops (and of rows, for the steps), never with its square.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ops/op.h"

namespace bcnn {

using Ops = std::vector<std::unique_ptr<Op>>;
enum class Goal { time, memory };

struct Step {
    int op;
    uint16_t y0, y1;  // rows of the map made
};

struct Place {  // of a map in the arena
    size_t offset = 0;
    int rows = 0;      // row y is at slot y % rows; 0: it has no place
    size_t block = 0;  // from one block of channels to the next
};

struct Share {
    std::vector<Step> steps;
    int c0 = 0, c1 = 1 << 30;  // channels, where an op is split by them
    std::vector<Place> rings;  // by op of the segment
};

struct Segment {
    int begin, end;  // ops
    std::vector<Share> shares;
};

constexpr size_t kLineBytes = 64;

struct Layout {                    // of a map in the arena
    int period;                    // see kernels.h
    bool extend;                   // channels are repeated up to the period
    size_t row;                    // bytes from one row to the next
    int blocks;                    // lines of channels; a bit map is one block
    size_t block(int rows) const;  // bytes of one block of channels
    size_t bytes(int rows) const;  // of all of them
};

struct Plan {
    std::vector<Segment> segments;
    std::vector<Place> whole;  // by op: maps that are kept whole
    size_t bytes = 0;          // of the arena
    const Place& place(const Segment& segment, const Share& share, int map) const {
        const int at = map - segment.begin;
        return at >= 0 && at < int(share.rings.size()) && share.rings[at].rows ? share.rings[at] : whole[map];
    }
};

std::vector<Layout> layouts(const Ops& ops, const Kernels& kernels);
Plan make_plan(const Ops& ops, const std::vector<Layout>& layouts, int shares, Goal goal);

// --- the steps of it -------------------------------------------------------------------------------------------------

struct Network {  // what they all look at
    const Ops& ops;
    const std::vector<Layout>& layouts;
    int shares;
    std::vector<std::vector<int>> readers;  // of each map, in order
    std::vector<int> batch;                 // rows of a map that are made together

    Network(const Ops& ops, const std::vector<Layout>& layouts, int shares, Goal goal);
    int last_reader(int op) const { return readers[op].empty() ? op : readers[op].back(); }
    bool whole(int op, int end) const {
        return readers[op].empty() || last_reader(op) >= end;
    }  // in a segment that ends there
    // An op that has its segment to itself and is split by channels. Not one whose channels are repeated: that takes
    // all of them.
    bool by_channels(int begin, int end) const {
        return end - begin == 1 && ops[begin]->splits_channels() && !layouts[begin].extend;
    }
    Range own_rows(int op, int share) const;
};

// Where segments begin and end: 0, ..., the number of ops. For the least time.
std::vector<int> cut(const Network& network);
// For the least memory, some to be tried: one segment, in which every map is a ring, and cuts where little is alive.
// Rings of one segment are all there at a time, those of several are not.
std::vector<std::vector<int>> memory_cuts(const Network& network);
// Maps that are read in a later segment than they are made in, and those that nobody reads: first fit by lifetime.
// `in_use`: by segment, where the whole maps end that it makes, reads or must keep.
std::vector<Place> place_whole(const Network& network, const std::vector<int>& cuts, std::vector<size_t>& in_use);
// The shares of the ops [begin, end). `bytes` is the arena's end so far, moved past their rings.
Segment schedule(const Network& network, int begin, int end, size_t& bytes);

}  // namespace bcnn
