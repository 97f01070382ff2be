#include "engine.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace bcnn {

struct Engine::Context {
    Aligned<uint8_t> arena;
    struct Own {  // of a share that may run at the same time as others
        Aligned<uint8_t> scratch;
        std::vector<Task> tasks;  // by op of a segment: what its steps have in common
        std::vector<Map> maps;    // that those read
    };
    std::vector<Own> own;
};

struct Engine::Run {
    const uint8_t* image;
    Context& context;
    int own;
    void* const* maps = nullptr;  // debug: where to copy maps to
    double* fastest = nullptr;    // profile: the least time each step has taken
};

Engine::Engine(const std::vector<Record>& records, const std::vector<Shape>& shapes, const Kernels& kernels,
               int threads, Goal goal)
    : threads_(threads), turn_(std::make_unique<Turn>()), at_fork_([this] { after_fork(); }) {
    Build build(records, shapes, kernels);
    value_bytes_ = build.value_bytes;
    for (size_t i = 0; i < records.size(); i++) maker_.push_back(build.maker(int(i)));
    ops_ = std::move(build.ops);
    for (const auto& op : ops_) scratch_bytes_ = std::max(scratch_bytes_, op->scratch_bytes());
    layouts_ = bcnn::layouts(ops_, kernels);
    alone_ = make_plan(ops_, layouts_, 1, goal);
    if (threads > 1) split_ = make_plan(ops_, layouts_, threads, goal);
    for (const Segment& segment : split().segments) split_pieces_.push_back(int(segment.shares.size()));
    const Shape &first = shapes.front(), &last = shapes.back();
    image_bytes_ = size_t(first.h) * size_t(first.w) * 3;
    logits_ = size_t(last.h) * size_t(last.w) * size_t(last.c);
    contexts_.resize(size_t(threads));
}

Engine::~Engine() = default;

void Engine::after_fork() {
    (void)pool_.release();   // its threads do not exist here; joining them would never end
    new (turn_.get()) Turn;  // it may be held by one of them; made anew in its place, without memory to ask for
}

Pool& Engine::pool() {
    if (!pool_) pool_ = std::make_unique<Pool>(threads_);
    return *pool_;
}

std::unique_ptr<Engine::Context> Engine::context(const Plan& plan, int scratches) const {
    auto context = std::make_unique<Context>();
    context->arena = Aligned<uint8_t>(plan.bytes);
    size_t most_ops = 0, most_maps = 0;  // of a segment
    for (const Segment& segment : plan.segments) {
        size_t maps = 0;
        for (int i = segment.begin; i < segment.end; i++) maps += ops_[size_t(i)]->reads.size();
        most_ops = std::max(most_ops, size_t(segment.end - segment.begin));
        most_maps = std::max(most_maps, maps);
    }
    for (int i = 0; i < scratches; i++)
        context->own.push_back(
            {Aligned<uint8_t>(scratch_bytes_ + 1), std::vector<Task>(most_ops), std::vector<Map>(most_maps)});
    return context;
}

size_t Engine::peak_memory() const { return split().bytes + size_t(threads_) * scratch_bytes_; }

size_t Engine::weight_memory() const {
    size_t bytes = 0;
    for (const auto& op : ops_) bytes += op->parameter_bytes();
    return bytes;
}

// --- running ---------------------------------------------------------------------------------------------------------

void Engine::run(const uint8_t* images, size_t count, void* to) {
    uint8_t* const logits = static_cast<uint8_t*>(to);
    std::lock_guard<Turn> lock(*turn_);
    if (count == 1 && threads_ > 1) {  // all threads on one image
        if (!split_context_) split_context_ = context(split_, threads_);
        pool().run(split_pieces_, [&](int stage, int piece, int thread) {
            segment(split_, stage, piece, {images, *split_context_, thread});
        });
        take_logits(split_, *split_context_, logits);
        return;
    }
    for (size_t i = 0; i < (count == 1 ? 1 : size_t(threads_)); i++)  // any thread may take any image
        if (!contexts_[i]) contexts_[i] = context(alone_, 1);
    const auto one = [&](int, int image, int thread) {  // an image a thread
        Context& own = *contexts_[size_t(thread)];
        for (int s = 0; s < int(alone_.segments.size()); s++)
            segment(alone_, s, 0, {images + size_t(image) * image_bytes_, own, 0});
        take_logits(alone_, own, logits + size_t(image) * logits_ * value_bytes_);
    };
    if (count == 1)
        one(0, 0, 0);
    else
        pool().run({int(count)}, one);
}

void Engine::maps(const uint8_t* image, void* const* maps) {
    std::lock_guard<Turn> lock(*turn_);
    const auto own = context(split(), 1);
    for (int s = 0; s < int(split().segments.size()); s++)
        for (int i = 0; i < split_pieces_[size_t(s)]; i++) segment(split(), s, i, {image, *own, 0, maps});
}

void Engine::profile(const uint8_t* image, int repeats, double* seconds) {
    std::lock_guard<Turn> lock(*turn_);
    if (!contexts_[0]) contexts_[0] = context(alone_, 1);
    std::vector<std::vector<double>> fastest;
    for (const Segment& s : alone_.segments) fastest.emplace_back(s.shares[0].steps.size(), 1e9);
    for (int i = 0; i < repeats; i++)
        for (int s = 0; s < int(alone_.segments.size()); s++)
            segment(alone_, s, 0, {image, *contexts_[0], 0, nullptr, fastest[size_t(s)].data()});
    for (size_t s = 0; s < fastest.size(); s++)
        for (size_t i = 0; i < fastest[s].size(); i++)
            seconds[ops_[size_t(alone_.segments[s].shares[0].steps[i].op)]->record] += fastest[s][i];
}

void Engine::segment(const Plan& plan, int index, int share_index, const Run& run) const {
    const Segment& segment = plan.segments[size_t(index)];
    const Share& share = segment.shares[size_t(share_index)];
    Context::Own& own = run.context.own[size_t(run.own)];
    Map* in = own.maps.data();
    for (int i = segment.begin; i < segment.end; i++) {
        const Op& op = *ops_[size_t(i)];
        own.tasks[size_t(i - segment.begin)] = {0,         0,
                                                share.c0,  std::min(share.c1, op.shape.c),
                                                in,        map(plan, segment, share, i, run.context),
                                                run.image, own.scratch.data()};
        for (const int read : op.reads) *in++ = map(plan, segment, share, read, run.context);
    }
    using Clock = std::chrono::steady_clock;
    Clock::time_point before = Clock::now();
    for (const Step& s : share.steps) {
        Task& task = own.tasks[size_t(s.op - segment.begin)];
        task.y0 = s.y0;
        task.y1 = s.y1;
        step(s.op, task, run);
        if (run.fastest) {
            const Clock::time_point now = Clock::now();
            double& seconds = run.fastest[&s - share.steps.data()];
            seconds = std::min(seconds, std::chrono::duration<double>(now - before).count());
            before = now;
        }
    }
}

Map Engine::map(const Plan& plan, const Segment& segment, const Share& share, int op, Context& context) const {
    const Place& place = plan.place(segment, share, op);
    const Layout& layout = layouts_[size_t(op)];
    return {context.arena.data() + place.offset,
            place.rows,
            layout.row,
            {layout.period, place.block / ops_[size_t(op)]->value_bytes}};
}

namespace {

// So many neighbours in the line of every pixel of a row, from one place of the line to another.
template <class Value, int count>
void copy_channels(const Value* from, Value* to, int pixels) {
    for (int x = 0; x < pixels; x++, from += line_of<Value>, to += line_of<Value>)
        std::memcpy(to, from, count * sizeof(Value));
}
template <class Value, int count = line_of<Value>>
int copy_at_most(int most, const Value* from, Value* to, int pixels) {  // the largest power of two; returns it
    if constexpr (count > 1)
        if (count > most) return copy_at_most<Value, count / 2>(most, from, to, pixels);
    copy_channels<Value, count>(from, to, pixels);
    return count;
}

// Channels of rows [y0, y1) repeated up to the map's period, for readers that take replicas in whole registers. What has
// been repeated is repeated on: as many at a time as are there and as lie in one line, here and there.
template <class Value>
void extend(const Op& op, const Task& task) {
    const View view = task.out.view;
    const auto left_in_line = [](int c) { return line_of<Value> - c % line_of<Value>; };
    for (int y = task.y0; y < task.y1; y++)
        for (int to = op.shape.c; to < view.period;) {
            const int from = to % op.shape.c;
            const int most = std::min({to - from, view.period - to, left_in_line(from), left_in_line(to)});
            Value* const row = task.out.values<Value>(y);
            to += copy_at_most(most, row + place_of<Value>(view, from), row + place_of<Value>(view, to), op.shape.w);
        }
}

template <class Value>
void copy_rows(const Op& op, const Task& task, Value* to) {
    for (int y = task.y0; y < task.y1; y++)
        for (int x = 0; x < op.shape.w; x++) {
            const Value* const from = task.out.values<Value>(y) + size_t(x) * line_of<Value>;
            Value* const pixel = to + (size_t(y) * size_t(op.shape.w) + size_t(x)) * size_t(op.shape.c);
            for (int c = task.c0; c < task.c1; c++) pixel[c] = from[place_of<Value>(task.out.view, c)];
        }
}

}  // namespace

void Engine::step(int index, const Task& task, const Run& run) const {
    const Op& op = *ops_[size_t(index)];
    op.run(task);
    if (layouts_[size_t(index)].extend && !op.extends())
        (value_bytes_ == 4 ? extend<float> : extend<int16_t>)(op, task);
    if (run.maps && maker_[size_t(op.record)] == index) copy_out(op, task, run.maps[op.record]);
}

void Engine::copy_out(const Op& op, const Task& task, void* to) const {
    if (value_bytes_ == 4)
        copy_rows(op, task, static_cast<float*>(to));
    else
        copy_rows(op, task, static_cast<int16_t*>(to));
}

void Engine::take_logits(const Plan& plan, Context& context, uint8_t* logits) const {
    const int last = int(ops_.size()) - 1;
    const Segment& segment = plan.segments.back();
    const Op& op = *ops_.back();
    const Task all{0,       op.shape.h, 0, op.shape.c, nullptr, map(plan, segment, segment.shares[0], last, context),
                   nullptr, nullptr};
    copy_out(op, all, logits);
}

}  // namespace bcnn
