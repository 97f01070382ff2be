// A program as the engine is handed it: one Op per op of bcnn/program.py, which defines what each computes.
// Arrays are views of the caller's memory, alive only while an Engine is made; the engine keeps its own packed copies.
// Legend as there: H x W map size, C channels of the map read, K after replication (K = RC), O channels made.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace bcnn {

enum class Kind { input, binary_conv, depthwise, avg_pool, channel_avg, global_avg_pool, linear };

struct Branch {
    const float* threshold;  // [K]
    const uint32_t* weight;  // [O, ceil(K / 32)]
    const float* scale;      // [O]
    const float* offset;     // [O]
    int dy, dx;              // pixel (y + dy, x + dx) is read
};

struct Op {
    Kind kind;
    int h, w, c;                       // shape of the map it makes
    int source = -1;                   // the map it reads
    int add = -1;                      // binary_conv: a map added to the result, or -1
    int k = 0;                         // channels after replication
    int stride = 1;                    // depthwise, avg_pool
    bool identity = false;             // binary_conv: starts from its input
    bool prelu_after_add = false;      // binary_conv
    std::vector<Branch> branches;      // binary_conv
    const float* scale = nullptr;      // input [3]
    const float* offset = nullptr;     // input [3], depthwise [K], linear [O]
    const float* intensity = nullptr;  // input [3] or none
    const float* weight = nullptr;     // depthwise [3, 3, K], linear [C, O]
    const float* slope = nullptr;      // binary_conv [O], depthwise [K], or none

    bool shifted() const {
        for (const Branch& b : branches)
            if (b.dy || b.dx) return true;
        return false;
    }
};

using Model = std::vector<Op>;

}  // namespace bcnn
