// Included by dispatch.cpp once per instruction set, inside that set's namespace. GCC's and clang's vector types compile to
// whatever the surrounding target offers, so the same lines are AVX2, SSE2 or NEON.

typedef float f8 __attribute__((vector_size(32)));
typedef int16_t i16x8 __attribute__((vector_size(16)));
typedef int8_t i8x32 __attribute__((vector_size(32)));

#define BCNN_INLINE static inline __attribute__((always_inline))
#define BCNN_MEMBER inline __attribute__((always_inline))

constexpr size_t kGroup = 4;            // signs to a table index
constexpr size_t kRow = 64;             // bytes of a table row: two vectors, 16 floats or 64 int8
constexpr size_t kTable = 16 * kRow;    // bytes of one group's sixteen sums
constexpr size_t kChunk = 16;           // groups summed at once: 16 KB of table in L1, and int8 sums stay within +-64
constexpr size_t kForwardPixels = 256;  // enough that streaming a wide layer's table from L3 is hidden
constexpr size_t kBackwardPixels = kChunk * kGroup;
constexpr size_t kLanes = kRow / sizeof(float);
constexpr size_t kMomentsPixels = 64;  // float sums stay short; longer ones are double

template <class V, class T>
BCNN_INLINE V load(const T* from) {
    V value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

template <class V, class T>
BCNN_INLINE void store(T* to, V value) {
    std::memcpy(to, &value, sizeof value);
}

// Element-wise kernels take eight channels at a time; the same code with F = float does the channels left over.
#define BCNN_PANELS(channels, name, ...)                                 \
    do {                                                                 \
        size_t k_ = 0;                                                   \
        for (; k_ + 8 <= (channels); k_ += 8) name<f8>(k_, __VA_ARGS__); \
        for (; k_ < (channels); k_++) name<float>(k_, __VA_ARGS__);      \
    } while (0)

// Pixels that pass by while what belongs to the eight channels is in registers. One: maps larger than the cache are read fastest in
// their own order, and eight pixels a turn cost 20 to 30 % in all.
constexpr size_t kTurn = 1;

template <class F>
BCNN_INLINE F load_y(const float* y) {
    return load<F>(y);
}

template <class F>
BCNN_INLINE F load_y(const int16_t* y) {
    if constexpr (sizeof(F) == 4)
        return float(*y);
    else
        return __builtin_convertvector(load<i16x8>(y), f8);
}

// In the order of use, which a blank line between them keeps.
#include "signs.inl"

#include "norm.inl"

#include "binary_conv.inl"
#include "depthwise_conv.inl"

#undef BCNN_INLINE
#undef BCNN_MEMBER
#undef BCNN_PANELS
