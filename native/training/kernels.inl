// The training kernels, written once. Included inside an instruction set's namespace, in a target region: the vector types of GCC
// and clang compile to whatever the target offers, so the same lines are AVX2, SSE2 or NEON. No standard library in here, for the
// reason that ../kernels.inl gives.

#ifdef BCNN_TRAINING_AVX512
constexpr size_t kVector = 64;  // bytes of a vector
#else
constexpr size_t kVector = 32;
#endif
constexpr size_t kFloats = kVector / sizeof(float);

typedef float f4 __attribute__((vector_size(16)));
typedef float f8 __attribute__((vector_size(32)));
typedef float fv __attribute__((vector_size(kVector)));
typedef int8_t i8v __attribute__((vector_size(kVector)));
typedef uint8_t u8x8 __attribute__((vector_size(8)));
typedef int8_t i8x16 __attribute__((vector_size(16)));
typedef int16_t i16x16 __attribute__((vector_size(32)));

// As many integers as F has floats.
template <class F>
struct Integers;
template <>
struct Integers<float> {
    typedef int32_t words;
};
template <>
struct Integers<f8> {
    typedef uint8_t bytes __attribute__((vector_size(8)));
    typedef int16_t shorts __attribute__((vector_size(16)));
    typedef int32_t words __attribute__((vector_size(32)));
};
#ifdef BCNN_TRAINING_AVX512
template <>
struct Integers<fv> {
    typedef uint8_t bytes __attribute__((vector_size(16)));
    typedef int16_t shorts __attribute__((vector_size(32)));
    typedef int32_t words __attribute__((vector_size(64)));
};
#endif

#define BCNN_INLINE static inline __attribute__((always_inline))
#define BCNN_MEMBER inline __attribute__((always_inline))
#define BCNN_KERNEL static __attribute__((noinline))  // a loop that is to have all registers for itself

constexpr size_t kGroup = 4;            // signs to a table index
constexpr size_t kRow = 64;             // bytes of a table row: one vector or two, 16 floats or 64 int8
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

// Piece `i` of a stage that goes backwards through what a thread did in the stage before: see ../pool.h for its share.
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

// Element-wise kernels take a vector of channels at a time; the same code with F = f8 and F = float does the channels left over.
#define BCNN_PANELS(channels, name, ...)                                             \
    do {                                                                             \
        size_t k_ = 0;                                                               \
        for (; k_ + kFloats <= (channels); k_ += kFloats) name<fv>(k_, __VA_ARGS__); \
        if (kFloats > 8 && k_ + 8 <= (channels)) name<f8>(k_, __VA_ARGS__), k_ += 8; \
        for (; k_ < (channels); k_++) name<float>(k_, __VA_ARGS__);                  \
    } while (0)

// How many pixels of so many channels they take a turn: at most 16 KB of one map, or what they share leaves the cache between panels.
BCNN_INLINE size_t turn_pixels(size_t channels) {
    constexpr size_t most = 4096;
    return channels < most ? least(most / channels, kBackwardPixels) : 1;
}

template <class F>
BCNN_INLINE F load_y(const float* y) {
    return load<F>(y);
}

template <class F>
BCNN_INLINE typename Integers<F>::words load_whole(const int16_t* y) {
    if constexpr (sizeof(F) == 4)
        return *y;
    else
        return __builtin_convertvector(load<typename Integers<F>::shorts>(y), typename Integers<F>::words);
}

template <class F>
BCNN_INLINE F load_y(const int16_t* y) {
    if constexpr (sizeof(F) == 4)
        return float(*y);
    else
        return __builtin_convertvector(load_whole<F>(y), F);
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
#undef BCNN_KERNEL
#undef BCNN_PANELS
