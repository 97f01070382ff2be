#include "engine.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>

namespace bcnn {

template <class T>
Aligned<T>::Aligned(size_t count) : size_(count) {
    // Pixels of late levels are a page apart: with large pages a row of them does not outgrow the translation buffers.
    constexpr size_t huge = 2 << 20;
    const size_t bytes = std::max<size_t>(count, 1) * sizeof(T), align = bytes >= huge / 2 ? huge : 64;
    const size_t whole = (bytes + align - 1) / align * align;
    void* memory = std::aligned_alloc(align, whole);
    if (!memory) throw std::bad_alloc();
#if defined(__linux__)
    if (align == huge) madvise(memory, whole, MADV_HUGEPAGE);
#endif
    std::memset(memory, 0, whole);
    data_.reset(static_cast<T*>(memory));
}

struct Engine::Packed {
    Aligned<float> floats;      // every real parameter, each array padded
    Aligned<uint8_t> weights;   // of all branches
    std::vector<BranchData> branches;
    BinaryConvData conv{};
    DepthwiseData depthwise{};
    const float *weight = nullptr, *bias = nullptr;  // linear
    float lookup[3][256];                            // input: a channel's value for each byte
    float intensity[3] = {};
    bool has_intensity = false;
};

struct Engine::Context {
    Aligned<float> arena;
    std::vector<Aligned<uint8_t>> scratch;  // one per share that may run at a time
    std::vector<std::vector<const float*>> rows;
};

struct Engine::Run {
    const uint8_t* image;
    Context& context;
    int scratch;
    float* const* maps = nullptr;   // debug: where to copy maps to
    double* fastest = nullptr;      // profile: the least time each step has taken
};

namespace {

// --- fork: the child has only the thread that called fork -----------------------------------------------------------

std::mutex& registry_mutex() {
    static std::mutex* mutex = new std::mutex;  // never destroyed: engines may outlive static objects
    return *mutex;
}
std::vector<Engine*>& registry() {
    static auto* engines = new std::vector<Engine*>;
    return *engines;
}
void register_engine(Engine* engine) {
    static const bool once = [] {
        pthread_atfork([] { registry_mutex().lock(); }, [] { registry_mutex().unlock(); },
                       [] {
                           for (Engine* e : registry()) e->after_fork();
                           registry_mutex().unlock();
                       });
        return true;
    }();
    (void)once;
    std::lock_guard<std::mutex> lock(registry_mutex());
    registry().push_back(engine);
}

// --- packing: arrays padded to kPad channels -------------------------------------------------------------------------

size_t padded(size_t channels) { return (channels + kPad - 1) / kPad * kPad; }

float* put(float*& to, const float* from, size_t count, float fill) {
    float* at = to;
    if (from) std::copy(from, from + count, at);
    std::fill(at + (from ? count : 0), at + padded(count), fill);
    to += padded(count);
    return at;
}

View view(const Layout& layout, const Rows& rows) { return {layout.period, rows.block}; }

}  // namespace

Engine::Engine(const Model& model, const Kernels& kernels, int threads)
    : kernels_(kernels), threads_(threads), model_(model), layouts_(bcnn::layouts(model, kernels.lanes)) {
    std::vector<size_t> weights;
    packed_.resize(model.size());
    scratch_bytes_ = 0;
    for (size_t i = 0; i < model.size(); i++) {
        pack(model[i], packed_[i]);
        weights.push_back(packed_[i].weights.size());
        if (model[i].kind == Kind::binary_conv) scratch_bytes_ = std::max(scratch_bytes_, kernels.scratch_bytes(model[i].k));
    }
    const Op& last = model.back();
    logits_ = size_t(last.h) * last.w * last.c;
    alone_ = make_plan(model, layouts_, weights, 1);
    split_ = make_plan(model, layouts_, weights, threads);
    size_t zeros = 0;  // floats from the first to the last channel of a pixel that a shifted filter reads
    for (const Plan* plan : {&alone_, &split_})
        for (const Segment& segment : plan->segments)
            for (const Share& share : segment.shares)
                for (const Step& step : share.steps)
                    if (packed_[step.op].conv.shifted) {
                        const int x = model[step.op].source;
                        zeros = std::max(zeros, size_t(place_of(view(layouts_[x], share.maps[x]), layouts_[x].period - 1)) + kLine);
                    }
    if (zeros) zeros_.reset(static_cast<float*>(std::calloc(zeros, sizeof(float))));
    if (zeros && !zeros_) throw std::bad_alloc();
    for (const Segment& segment : split_.segments) split_pieces_.push_back(int(segment.shares.size()));
    for (Op& op : model_) {  // views of memory that is the caller's
        for (Branch& b : op.branches) b.threshold = b.scale = b.offset = nullptr, b.weight = nullptr;
        op.scale = op.offset = op.intensity = op.weight = op.slope = nullptr;
    }
    contexts_.resize(threads);
    turn_ = std::make_unique<std::mutex>();
    register_engine(this);
}

Engine::~Engine() {
    std::lock_guard<std::mutex> lock(registry_mutex());
    auto& all = registry();
    all.erase(std::find(all.begin(), all.end(), this));
}

void Engine::after_fork() {
    (void)pool_.release();  // its threads do not exist here; joining them would never end
    (void)turn_.release();
    turn_ = std::make_unique<std::mutex>();
}

Pool& Engine::pool() {
    if (!pool_) pool_ = std::make_unique<Pool>(threads_);
    return *pool_;
}

void Engine::pack(const Op& op, Packed& packed) const {
    const size_t o = size_t(op.c), k = size_t(op.k);
    if (op.kind == Kind::input) {
        for (int c = 0; c < 3; c++)
            for (int u = 0; u < 256; u++) packed.lookup[c][u] = float(u) * op.scale[c] + op.offset[c];
        packed.has_intensity = op.intensity != nullptr;
        if (op.intensity) std::copy(op.intensity, op.intensity + 3, packed.intensity);
    } else if (op.kind == Kind::binary_conv) {
        const size_t weight_group = kernels_.weight_bytes(op.k);
        const size_t weight = (o + kernels_.group - 1) / kernels_.group * weight_group;
        packed.floats = Aligned<float>(op.branches.size() * (padded(k) + 2 * padded(o)) + padded(o));
        packed.weights = Aligned<uint8_t>(op.branches.size() * weight);
        float* to = packed.floats.data();
        for (size_t b = 0; b < op.branches.size(); b++) {
            const Branch& from = op.branches[b];
            BranchData data;
            data.threshold = put(to, from.threshold, k, std::numeric_limits<float>::quiet_NaN());
            data.scale = put(to, from.scale, o, 0);
            data.offset = put(to, from.offset, o, 0);
            data.weight = packed.weights.data() + b * weight;
            data.dx = from.dx;
            kernels_.pack_weight(from.weight, op.c, op.k, packed.weights.data() + b * weight);
            packed.branches.push_back(data);
        }
        BinaryConvData& d = packed.conv;
        d.k = op.k;
        d.o = op.c;
        d.branches = int(op.branches.size());
        d.width = op.w;
        d.branch = packed.branches.data();
        d.slope = op.slope ? put(to, op.slope, o, 0) : nullptr;
        d.identity = op.identity;
        d.prelu_after_add = op.prelu_after_add;
        d.shifted = op.shifted();
        d.weight_group = weight_group;
        d.bits = kernels_.bits_bytes(op.k);
    } else if (op.kind == Kind::depthwise) {
        packed.floats = Aligned<float>(11 * padded(k));
        float* to = packed.floats.data();
        DepthwiseData& d = packed.depthwise;
        d.offset = put(to, op.offset, k, 0);
        d.slope = put(to, op.slope, k, 1);  // without PReLU, a slope of 1
        d.weight = to;
        const size_t lanes = size_t(kernels_.lanes);
        for (size_t c = 0; c < k; c++)
            for (size_t tap = 0; tap < 9; tap++) to[(c / lanes * 9 + tap) * lanes + c % lanes] = op.weight[tap * k + c];
        d.k = op.k;
        d.width = model_[op.source].w;
        d.stride = op.stride;
    } else if (op.kind == Kind::linear) {
        packed.floats = Aligned<float>(padded(o) * (k + 1));
        float* to = packed.floats.data();
        packed.bias = put(to, op.offset, o, 0);
        packed.weight = to;
        for (size_t begin = 0; begin < o; begin += kPad)
            for (size_t c = 0; c < k; c++)
                std::copy(op.weight + c * o + begin, op.weight + c * o + std::min(begin + kPad, o), to + begin * k + c * kPad);
    }
}

std::unique_ptr<Engine::Context> Engine::context(const Plan& plan, int scratches) const {
    auto context = std::make_unique<Context>();
    context->arena = Aligned<float>(plan.floats);
    for (int i = 0; i < scratches; i++) context->scratch.emplace_back(scratch_bytes_);
    context->rows.resize(scratches);
    return context;
}

size_t Engine::peak_memory() const {
    return split_.floats * sizeof(float) + size_t(threads_) * scratch_bytes_;
}

size_t Engine::weight_memory() const {
    size_t bytes = 0;
    for (const Packed& p : packed_) bytes += p.weights.size() + p.floats.size() * sizeof(float);
    return bytes;
}

// --- running -----------------------------------------------------------------------------------------------------------

void Engine::run(const uint8_t* images, size_t count, float* logits) {
    std::lock_guard<std::mutex> lock(*turn_);
    const size_t image_bytes = size_t(model_[0].h) * model_[0].w * 3;
    if (count == 1 && threads_ > 1) {  // all threads on one image
        if (!split_context_) split_context_ = context(split_, threads_);
        pool().run(split_pieces_, [&](int stage, int piece, int thread) {
            segment(split_, stage, piece, {images, *split_context_, thread});
        });
        take_logits(split_, *split_context_, logits);
        return;
    }
    for (size_t i = 0; i < (count == 1 ? 1 : size_t(threads_)); i++)
        if (!contexts_[i]) contexts_[i] = context(alone_, 1);
    const auto one = [&](int, int image, int thread) {  // an image a thread
        const std::unique_ptr<Context>& own = contexts_[thread];
        for (int s = 0; s < int(alone_.segments.size()); s++) segment(alone_, s, 0, {images + image * image_bytes, *own, 0});
        take_logits(alone_, *own, logits + image * logits_);
    };
    if (count == 1)
        one(0, 0, 0);
    else
        pool().run({int(count)}, one);
}

void Engine::maps(const uint8_t* image, float* const* maps) {
    std::lock_guard<std::mutex> lock(*turn_);
    const auto own = context(split_, 1);
    for (int s = 0; s < int(split_.segments.size()); s++)
        for (int i = 0; i < split_pieces_[s]; i++) segment(split_, s, i, {image, *own, 0, maps});
}

void Engine::profile(const uint8_t* image, int repeats, double* seconds) {
    std::lock_guard<std::mutex> lock(*turn_);
    if (!contexts_[0]) contexts_[0] = context(alone_, 1);
    std::vector<std::vector<double>> fastest;
    for (const Segment& s : alone_.segments) fastest.emplace_back(s.shares[0].steps.size(), 1e9);
    for (int i = 0; i < repeats; i++)
        for (int s = 0; s < int(alone_.segments.size()); s++)
            segment(alone_, s, 0, {image, *contexts_[0], 0, nullptr, fastest[s].data()});
    for (size_t s = 0; s < fastest.size(); s++)
        for (size_t i = 0; i < fastest[s].size(); i++) seconds[alone_.segments[s].shares[0].steps[i].op] += fastest[s][i];
}

void Engine::take_logits(const Plan& plan, const Context& context, float* logits) const {
    const Op& last = model_.back();
    const Rows& rows = plan.segments.back().shares[0].maps.back();
    const View v = view(layouts_.back(), rows);
    for (size_t p = 0; p < size_t(last.h) * last.w; p++)
        for (int c = 0; c < last.c; c++)
            logits[p * last.c + c] = context.arena.data()[rows.offset + p * kLine + place_of(v, c)];
}

void Engine::segment(const Plan& plan, int index, int share_index, const Run& run) const {
    const Share& share = plan.segments[index].shares[share_index];
    using Clock = std::chrono::steady_clock;
    Clock::time_point before = Clock::now();
    for (const Step& s : share.steps) {
        step(s, share, run);
        if (run.maps) copy_out(s, share, run);
        if (run.fastest) {
            const Clock::time_point now = Clock::now();
            double& seconds = run.fastest[&s - share.steps.data()];
            seconds = std::min(seconds, std::chrono::duration<double>(now - before).count());
            before = now;
        }
    }
}

void Engine::step(const Step& s, const Share& share, const Run& run) const {
    const Op& op = model_[s.op];
    const Packed& packed = packed_[s.op];
    const Layout& layout = layouts_[s.op];
    float* const arena = run.context.arena.data();
    const auto row = [&](int map, int y) {
        const Rows& rows = share.maps[map];
        return arena + rows.offset + size_t(y % rows.rows) * layouts_[map].row;
    };
    const auto view_of = [&](int map) { return view(layouts_[map], share.maps[map]); };
    float* const out = row(s.op, s.y0);
    const View out_view = view_of(s.op), x_view = view_of(std::max(op.source, 0));
    const int height = op.source >= 0 ? model_[op.source].h : 0;
    switch (op.kind) {
        case Kind::input: input(packed, s, out, run.image); break;
        case Kind::binary_conv: {
            BinaryConvStep c{};
            c.x = row(op.source, s.y0);
            c.add = op.add >= 0 ? row(op.add, s.y0) : nullptr;
            c.out = out;
            c.x_view = x_view;
            c.add_view = op.add >= 0 ? view_of(op.add) : x_view;
            c.out_view = out_view;
            c.pixels = (s.y1 - s.y0) * op.w;
            c.channel_begin = s.c0;
            c.channel_end = s.c1;
            c.scratch = run.context.scratch[run.scratch].data();
            if (packed.conv.shifted) {
                std::vector<const float*>& rows = run.context.rows[run.scratch];
                rows.clear();
                for (const Branch& b : op.branches) {
                    const int y = s.y0 + b.dy;
                    rows.push_back(0 <= y && y < height ? row(op.source, y) : nullptr);
                }
                c.rows = rows.data();
                c.zeros = zeros_.get();
            }
            kernels_.binary_conv(packed.conv, c);
            break;
        }
        case Kind::depthwise: {
            std::vector<const float*>& rows = run.context.rows[run.scratch];
            rows.clear();
            for (int y = s.y0 * op.stride - 1; y <= (s.y1 - 1) * op.stride + 1; y++)
                rows.push_back(0 <= y && y < height ? row(op.source, y) : nullptr);
            kernels_.depthwise(packed.depthwise, rows.data(), x_view, out, out_view, op.w, s.y1 - s.y0);
            break;
        }
        case Kind::avg_pool: {
            const Layout& from = layouts_[op.source];
            if (op.stride == 1 && layout.period == from.period && layout.extend <= from.extend) {  // the stem's: a copy
                for (int c = 0; c < layout.period; c += kLine)
                    std::memcpy(out + place_of(out_view, c), row(op.source, s.y0) + place_of(x_view, c), layout.row * sizeof(float));
                return;
            }
            std::vector<const float*>& rows = run.context.rows[run.scratch];
            rows.clear();
            for (int i = 0; i < op.stride; i++) rows.push_back(row(op.source, s.y0 * op.stride + i));
            kernels_.avg_pool(rows.data(), op.stride, x_view, op.c, out, out_view, op.w);
            break;
        }
        case Kind::channel_avg: channel_avg(op, row(op.source, s.y0), x_view, out, out_view); break;
        case Kind::global_avg_pool:
            kernels_.global_avg_pool(row(op.source, 0), height * model_[op.source].w, x_view, s.c0, s.c1, out);
            break;
        case Kind::linear: kernels_.linear(row(op.source, 0), op.k, packed.weight, packed.bias, s.c0, s.c1, out); break;
    }
    if (layout.extend && !packed.has_intensity)
        for (int x = 0; x < (s.y1 - s.y0) * op.w; x++) {
            float* pixel = out + size_t(x) * kLine;
            for (int c = op.c; c < layout.period; c++) pixel[place_of(out_view, c)] = pixel[place_of(out_view, c - op.c)];
        }
}

void Engine::input(const Packed& packed, const Step& s, float* out, const uint8_t* image) const {
    const Op& op = model_[s.op];
    const int period = layouts_[s.op].period;
    const uint8_t* from = image + size_t(s.y0) * op.w * 3;
    const float i0 = packed.intensity[0], i1 = packed.intensity[1], i2 = packed.intensity[2];
    for (int x = 0; x < op.w; x++, from += 3) {
        const float r = packed.lookup[0][from[0]], g = packed.lookup[1][from[1]], b = packed.lookup[2][from[2]];
        const float pixel[4] = {r, g, b, packed.has_intensity ? r * i0 + g * i1 + b * i2 : 0};
        float* to = out + size_t(x) * kLine;
        std::memcpy(to, pixel, sizeof pixel);
        if (packed.has_intensity)  // repeated up to the period right here
            for (int c = 4; c < period; c += 4) std::memcpy(to + c, pixel, sizeof pixel);
    }
}

void Engine::channel_avg(const Op& op, const float* x, View x_view, float* out, View out_view) const {
    const int channels = model_[op.source].c;
    for (int p = 0; p < op.w; p++, x += kLine, out += kLine)
        for (int j = 0; j < op.c; j++) {
            float sum = x[place_of(x_view, j)];
            for (int c = j + op.c; c < channels; c += op.c) sum += x[place_of(x_view, c)];
            out[place_of(out_view, j)] = sum / float((channels - j + op.c - 1) / op.c);
        }
}

void Engine::copy_out(const Step& s, const Share& share, const Run& run) const {
    const Op& op = model_[s.op];
    const Rows& rows = share.maps[s.op];
    const View v = view(layouts_[s.op], rows);
    for (int y = s.y0; y < s.y1; y++)
        for (int x = 0; x < op.w; x++) {
            const float* from = run.context.arena.data() + rows.offset + size_t(y % rows.rows) * layouts_[s.op].row + size_t(x) * kLine;
            for (int c = s.c0; c < s.c1; c++) run.maps[s.op][(size_t(y) * op.w + x) * op.c + c] = from[place_of(v, c)];
        }
}

}  // namespace bcnn
