// The native core without Python: reads programs, images and the interpreter's maps (tests/helpers/native_vectors.py writes
// them), runs each program on every instruction set of this machine with 1 to 4 threads, planned for time and for
// memory, and compares every map bit by bit. Where a sanitizer makes that slow, it can be told with how many threads,
// and to give the programs to the instruction sets in turns:
//   core_test VECTORS [turns] [THREADS ...]
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <thread>

#include "engine.h"

using namespace bcnn;

namespace {

FILE* file;
int failures = 0;

void read(void* to, size_t bytes) {
    if (std::fread(to, 1, bytes, file) != bytes) {
        std::fprintf(stderr, "vectors end too early\n");
        std::exit(2);
    }
}
int read_int() {
    int32_t value;
    read(&value, 4);
    return value;
}

std::string read_text() {
    std::string text(size_t(read_int()), ' ');
    read(&text[0], text.size());
    return text;
}

struct Case {
    std::vector<Record> records;
    std::vector<Shape> shapes;
    std::deque<std::vector<uint64_t>> arrays;  // aligned for any of them
    size_t value_bytes;                        // of maps: 4, or 2 of a program in integers
    std::vector<uint8_t> image;
    std::vector<std::vector<uint8_t>> maps;

    Record read_record() {
        Record r;
        r.kind = read_text();
        for (int i = read_int(); i > 0; i--) {
            std::vector<int>& to = r.numbers[read_text()];
            to.resize(size_t(read_int()));
            for (int& value : to) value = read_int();
        }
        for (int i = read_int(); i > 0; i--) {
            const std::string name = read_text();
            const size_t size = size_t(read_int()), bytes = size_t(read_int());
            arrays.emplace_back(size * bytes / 8 + 1);
            read(arrays.back().data(), size * bytes);
            r.arrays[name] = {arrays.back().data(), size, bytes};
        }
        for (int i = read_int(); i > 0; i--) {
            std::vector<Record>& to = r.parts[read_text()];
            for (int parts = read_int(); parts > 0; parts--) to.push_back(read_record());
        }
        return r;
    }

    explicit Case(int ops) : value_bytes(size_t(read_int())) {
        for (int i = 0; i < ops; i++) {
            const int h = read_int(), w = read_int(), c = read_int();
            shapes.push_back({h, w, c});
            records.push_back(read_record());
        }
        image.resize(size_t(shapes[0].h) * size_t(shapes[0].w) * 3);
        read(image.data(), image.size());
        for (const Shape& s : shapes) {
            maps.emplace_back(size_t(s.h) * size_t(s.w) * size_t(s.c) * value_bytes);
            read(maps.back().data(), maps.back().size());
        }
    }
};

// The same bits, or NaN on both sides: which NaN differs between processors.
bool equal(const uint8_t* a, const uint8_t* b, size_t bytes, size_t value_bytes) {
    if (value_bytes == 2) return std::memcmp(a, b, bytes) == 0;
    for (size_t i = 0; i < bytes; i += 4) {
        float one, other;
        std::memcpy(&one, a + i, 4);
        std::memcpy(&other, b + i, 4);
        if (std::memcmp(a + i, b + i, 4) != 0 && !(one != one && other != other)) return false;
    }
    return true;
}

void check(const Case& c, int number, const Kernels& kernels, int threads, Goal goal) {
    Engine engine(c.records, c.shapes, kernels, threads, goal);
    std::vector<std::vector<uint8_t>> made;
    std::vector<void*> to;
    for (const auto& map : c.maps) made.emplace_back(map.size());
    for (auto& map : made) to.push_back(map.data());
    engine.maps(c.image.data(), to.data());
    for (size_t i = 0; i < made.size(); i++)
        if (!equal(made[i].data(), c.maps[i].data(), made[i].size(), c.value_bytes)) {
            std::printf("program %d, %s, %d threads: map %zu differs\n", number, kernels.name, threads, i);
            failures++;
            break;
        }
    const size_t logits = engine.logits() * c.value_bytes;
    for (size_t count : {1, 5}) {
        std::vector<uint8_t> images;
        for (size_t i = 0; i < count; i++) images.insert(images.end(), c.image.begin(), c.image.end());
        std::vector<uint8_t> out(count * logits);
        engine.run(images.data(), count, out.data());
        for (size_t i = 0; i < count; i++)
            if (!equal(out.data() + i * logits, c.maps.back().data(), logits, c.value_bytes)) {
                std::printf("program %d, %s, %d threads: logits of image %zu of %zu differ\n", number, kernels.name,
                            threads, i, count);
                failures++;
            }
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2 || !(file = std::fopen(argv[1], "rb"))) {
        std::fprintf(stderr, "usage: core_test VECTORS [turns] [THREADS ...]\n");
        return 2;
    }
    const bool turns = argc > 2 && !std::strcmp(argv[2], "turns");
    std::vector<int> threads;
    for (int i = 2 + turns; i < argc; i++) threads.push_back(std::atoi(argv[i]));
    if (threads.empty()) threads = {1, 2, 3, 4};
    std::vector<const Kernels*> kernels;
    for (const Isa* isa = isas(); isa->kernels; isa++)
        if (isa->supported) kernels.push_back(isa->kernels);
    int number = 0;
    for (int ops; (ops = read_int()); number++) {
        const Case c(ops);
        for (size_t i = 0; i < kernels.size(); i++)
            if (!turns || i == size_t(number + number / 6) % kernels.size())  // their sizes repeat after six
                for (int count : threads)
                    for (const Goal goal : {Goal::time, Goal::memory}) check(c, number, *kernels[i], count, goal);
    }
    std::printf("%d programs:", number);
    for (const Isa* isa = isas(); isa->kernels; isa++)
        std::printf(" %s%s", isa->kernels->name, isa->supported ? "" : " (not run)");
    std::printf(": %s\n", failures ? "FAILED" : "passed");
    return failures != 0;
}
