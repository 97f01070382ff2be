// What work costs, roughly: only to be compared with each other when a plan is made. Results do not depend on it, and another
// machine's plan is not wrong, at worst a few percent slower. Times in nanoseconds on one core of an AMD EPYC (Zen 3, 3.24 GHz, AVX2);
// `python -m benchmarks.engine` prints what an op takes there and how many values and MACs it has. The two by `python -m benchmarks.calibrate_costs` are of
// another EPYC (family 25 model 17, 2.8 GHz, AVX2).
#pragma once
#include <cstddef>

namespace bcnn {

constexpr double kBinaryMacNs = 1.0 / 800;  // 909 GMAC/s in the innermost loop, some 800 with loops
constexpr double kFinishNs = 0.2;           // scale, offset, identity, PReLU of one value, and the bits of the next op
constexpr double kDepthwiseNs = 0.4;        // nine products and sums of one value
constexpr double kRealMacNs = 0.032;        // one product and sum, its share of loads included
constexpr double kSignNs = 0.155;           // one value to one bit, and that bit into the windows that read it
constexpr double kValueNs = 0.25;           // one value read, changed and written
// The same in 16 bits.
constexpr double kFixedFinishNs = 0.08;
constexpr double kFixedDepthwiseNs = 0.15;
constexpr double kFixedRealMacNs = 0.03;
constexpr double kFixedSignNs = 0.05;
constexpr double kFixedValueNs = 0.1;
constexpr double kL3BytesPerNs = 10;  // what a core moves through L3

constexpr size_t kWeightBudget = 272 << 10;  // bytes of weights that stay in an L2 of 512 kB beside the rows
constexpr size_t kBitsBudget = 24 << 10;     // bytes of bits that stay in an L1 of 32 kB beside tables: an estimate
constexpr double kL2Part = 1.0 / 8;          // weights that fit L2 are streamed from there at a fraction of the cost
constexpr int kBatchPixels = 56;    // of rows that are made together: as many as a binary convolution takes at a time
constexpr int kManyRows = 1 << 22;  // of all maps: for each as many more, one more row is made at a time, or steps of
                                    // a plan, 8 bytes each, would take more memory than maps
constexpr int kLongest = 64;        // ops of a segment: with each, more rows are made twice by threads, and the
                                    // plan of n ops looks at n * kLongest segments

}  // namespace bcnn
