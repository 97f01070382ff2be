// When each row of each map is made, and where it lives. Computed once when an engine is made.
//
// The ops are cut into segments. Inside a segment rows are pulled: the last op asks for its next row, each op asks the ones it
// reads for the rows it needs, and a map between two ops is a ring of just the rows that are still to be read. Between
// segments maps are whole. So early levels, with large maps and few weights, flow row by row through the cache, and late
// levels, where weights outgrow it, run op by op: `cut` weighs the two, and what threads would lose. (Cutting rows into strips
// of columns that stay in L1 from one op to the next was measured: no gain.)
//
// A segment is split into shares that can run at the same time: ranges of rows, each with its own rings (rows near the cut are
// made by both sides), or ranges of channels where the segment is a single op. Every value is computed the same way in every split.
#pragma once
#include <cstddef>
#include <vector>

#include "model.h"

namespace bcnn {

struct Step {
    int op;
    int y0, y1;  // rows of the map made; several only for depth wise ops and those that work pixel by pixel
    int c0, c1;  // channels
};

struct Rows {
    size_t offset = 0;  // in the arena, in floats
    int rows = 0;       // row y is at slot y % rows
    size_t block = 0;   // floats from one block of channels to the next
};

struct Share {
    std::vector<Step> steps;
    std::vector<Rows> maps;  // by op
};

struct Segment {
    std::vector<Share> shares;
};

struct Layout {          // of a map in the arena
    int period;          // see kernels.h
    bool extend;         // channels are repeated up to the period
    size_t row;          // floats from one row to the next
    size_t block(int rows) const;   // floats of one block of channels
    size_t floats(int rows) const;  // of all of them
};

struct Plan {
    std::vector<Segment> segments;
    size_t floats = 0;  // of the arena
};

std::vector<Layout> layouts(const Model& model, int lanes);

// `weights`: bytes of packed weights an op streams for each row or, alone in its segment, once.
Plan make_plan(const Model& model, const std::vector<Layout>& layouts, const std::vector<size_t>& weights, int shares);

}  // namespace bcnn
