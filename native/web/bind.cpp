// The engine for a browser. The only file that knows JavaScript, and it knows no op: src/bcnn/exports/page/engine.js hands
// over records. One instance of the module holds one program; an error is its end, since the page throws the sentence
// and drops the instance: nothing is unwound, nothing has to be freed.
#include <cstdlib>
#include <cstring>
#include <exception>
#include <typeinfo>

#include "engine.h"

using namespace bcnn;

#define BCNN_IMPORT(NAME) __attribute__((import_module("bcnn"), import_name(#NAME)))
#define BCNN_EXPORT(NAME) __attribute__((export_name(#NAME)))

extern "C" {

BCNN_IMPORT(fail) [[noreturn]] void page_fail(const char* sentence, size_t length);

// What the compiler makes of `throw`. All that the engine throws is a std::exception and nothing else, so it lies there.
void* __cxa_allocate_exception(size_t bytes) noexcept { return std::malloc(bytes); }
void __cxa_free_exception(void*) noexcept {}
[[noreturn]] void __cxa_throw(void* thrown, std::type_info*, void (*)(void*)) {
    const char* const what = static_cast<std::exception*>(thrown)->what();
    page_fail(what, std::strlen(what));
}
}

// What the standard library does where it cannot go on, such as without memory; its own would bring printf along.
_LIBCPP_BEGIN_NAMESPACE_STD
[[noreturn]] void __libcpp_verbose_abort(const char* format, ...) noexcept { page_fail(format, std::strlen(format)); }
_LIBCPP_END_NAMESPACE_STD

namespace {

// A program as engine.js writes it: all numbers are 32 bits, texts and arrays are filled up to whole ones. Arrays stay
// where they are.
class Reader {
public:
    Reader(const uint8_t* from, size_t bytes) : at_(from), end_(from + bytes) {}

    int number() {
        int32_t value;
        std::memcpy(&value, take(1), 4);
        return value;
    }
    int count() {
        const int value = number();
        if (value < 0) throw std::invalid_argument("the page handed over a negative count");
        return value;
    }
    std::string text() {
        const size_t length = size_t(count());
        return std::string(reinterpret_cast<const char*>(take((length + 3) / 4)), length);
    }
    Record record() {
        Record made;
        made.kind = text();
        for (int i = count(); i > 0; i--) {
            std::vector<int>& to = made.numbers[text()];
            for (int left = count(); left > 0; left--) to.push_back(number());
        }
        for (int i = count(); i > 0; i--) {
            const std::string name = text();
            const size_t size = size_t(count()), bytes = size_t(count());
            if (bytes != 4 && bytes != 2) throw std::invalid_argument("a program's arrays have values of 2 or 4 bytes");
            made.arrays[name] = {take((size * bytes + 3) / 4), size, bytes};
        }
        for (int i = count(); i > 0; i--) {
            std::vector<Record>& to = made.parts[text()];
            for (int left = count(); left > 0; left--) to.push_back(record());
        }
        return made;
    }

private:
    const uint8_t* take(size_t numbers) {
        const uint8_t* const from = at_;
        if (numbers > size_t(end_ - at_) / 4) throw std::invalid_argument("the page handed over too little");
        at_ += 4 * numbers;
        return from;
    }
    const uint8_t *at_, *end_;
};

std::unique_ptr<Engine> engine;
std::vector<Shape> shapes;
std::vector<uint8_t> image;
std::vector<uint8_t> logits;  // float32, or int16 of a program in integers
std::vector<std::vector<uint8_t>> maps;

}  // namespace

extern "C" {

BCNN_EXPORT(take) void* page_take(size_t bytes) { return std::malloc(bytes); }

BCNN_EXPORT(open) void page_open(uint8_t* program, size_t bytes) {
    Reader reader(program, bytes);
    std::vector<Record> records;
    for (int left = reader.count(); left > 0; left--) {
        const int h = reader.number(), w = reader.number(), c = reader.number();
        shapes.push_back({h, w, c});
        records.push_back(reader.record());
    }
    engine = std::make_unique<Engine>(records, shapes, *isas()->kernels, 1);
    records.clear();
    std::free(program);
    image.resize(size_t(shapes[0].h) * size_t(shapes[0].w) * 3);
    logits.resize(engine->logits() * engine->value_bytes());
}

BCNN_EXPORT(image) uint8_t* page_image() { return image.data(); }
BCNN_EXPORT(value_bytes) size_t page_value_bytes() { return engine->value_bytes(); }
BCNN_EXPORT(logits) uint8_t* page_logits() { return logits.data(); }
BCNN_EXPORT(run) void page_run() { engine->run(image.data(), 1, logits.data()); }
BCNN_EXPORT(memory_needed) size_t page_memory() { return engine->peak_memory() + engine->weight_memory(); }

// The image of a test vector, docs/file_format.md.
BCNN_EXPORT(vector) void page_vector(uint32_t seed) {
    for (size_t i = 0; i < image.size(); i++) {
        uint64_t h = (uint64_t(seed) << 32) + i;
        h = (h ^ h >> 31) * 0xBF58476D1CE4E5B9u;
        h = (h ^ h >> 31) * 0x94D049BB133111EBu;
        image[i] = uint8_t(h >> 56);
    }
}

// Every map of one run, for tests.
BCNN_EXPORT(maps) void page_maps() {
    std::vector<void*> to;
    maps.clear();
    for (const Shape& s : shapes) maps.emplace_back(size_t(s.h) * size_t(s.w) * size_t(s.c) * engine->value_bytes());
    for (auto& one : maps) to.push_back(one.data());
    engine->maps(image.data(), to.data());
}
BCNN_EXPORT(map) uint8_t* page_map(size_t op) { return maps[op].data(); }
}
