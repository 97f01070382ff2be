// The training kernels, written once. Included inside an instruction set's namespace, in a target region: the vector types of GCC
// and clang compile to whatever the target offers, so the same lines are AVX2, SSE2 or NEON. No standard library in here, for the
// reason that ../kernels.inl gives.

typedef float f8 __attribute__((vector_size(32)));
typedef int16_t i16x8 __attribute__((vector_size(16)));
typedef uint8_t u8x8 __attribute__((vector_size(8)));
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
constexpr bool kLittleEndian = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
constexpr size_t kMomentsPixels = 64;  // float sums stay short; longer ones are double

BCNN_INLINE size_t least(size_t a, size_t b) { return a < b ? a : b; }
BCNN_INLINE size_t units(size_t count, size_t unit) { return (count + unit - 1) / unit; }
BCNN_INLINE size_t round_up(size_t count, size_t unit) { return units(count, unit) * unit; }

template <class T>
static void fill(T* to, size_t count, T value) {
    for (size_t i = 0; i < count; i++) to[i] = value;
}

// An array aligned to cache lines, not initialised.
template <class T>
class Buffer {
public:
    explicit Buffer(size_t size) : data_((T*)allocate(size * sizeof(T))) {}
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() { free(data_); }
    operator T*() const { return data_; }

private:
    T* data_;
};

// The part of `count` units that belongs to piece `part` of `parts`.
struct Range {
    Range(size_t count, size_t part, size_t parts) : begin(count * part / parts), end(count * (part + 1) / parts) {}
    size_t begin, end;
};

// How many pieces `count` equal units are worth: enough that threads which are interrupted do not keep the others waiting.
BCNN_INLINE size_t shares(size_t count, int threads) { return threads == 1 ? 1 : least(count, 8 * size_t(threads)); }

// Piece `i` of a stage that goes backwards through what a thread did in the stage before: see `run_stages` for its share.
BCNN_INLINE size_t mirrored(size_t i, size_t pieces, size_t threads) {
    for (size_t t = 0; t < threads; t++) {
        const Range share(pieces, t, threads);
        if (i < share.end) return share.begin + share.end - 1 - i;
    }
    return i;
}

// work(stage, piece, thread) for every piece of every stage; a stage begins when the one before it is done.
template <class Work>
static void parallel(int threads, const int* pieces, int stages, const Work& work) {
    const auto call = [](const void* w, int stage, int piece, int thread) {
        (*(const Work*)w)(stage, size_t(piece), size_t(thread));
    };
    run_stages(threads, pieces, stages, call, &work);
}

template <class V, class T>
BCNN_INLINE V load(const T* from) {
    V value;
    __builtin_memcpy(&value, from, sizeof value);
    return value;
}

template <class V, class T>
BCNN_INLINE void store(T* to, V value) {
    __builtin_memcpy(to, &value, sizeof value);
}

// What is summed over pixels is summed in blocks of kMomentsPixels or kBackwardPixels, in float32; one record a block. Records are
// added in float64 by one thread for each of these many channels.
constexpr size_t kSumChannels = 16;

// Element-wise kernels take eight channels at a time; the same code with F = float does the channels left over.
#define BCNN_PANELS(channels, name, ...)                                 \
    do {                                                                 \
        size_t k_ = 0;                                                   \
        for (; k_ + 8 <= (channels); k_ += 8) name<f8>(k_, __VA_ARGS__); \
        for (; k_ < (channels); k_++) name<float>(k_, __VA_ARGS__);      \
    } while (0)

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

#include "avg_pool.inl"
#include "binary_conv.inl"
#include "depthwise_conv.inl"
#include "tap_conv.inl"

#undef BCNN_INLINE
#undef BCNN_MEMBER
#undef BCNN_PANELS
