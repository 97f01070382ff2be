// The native core without Python: reads programs, images and the interpreter's maps (tests/native_vectors.py writes them), runs each
// program on every instruction set of this machine with 1 to 4 threads, and compares every map with `==`.
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

struct Case {
    Model model;
    std::deque<std::vector<float>> floats;
    std::deque<std::vector<uint32_t>> words;
    std::vector<uint8_t> image;
    std::vector<std::vector<float>> maps;

    template <class T>
    const T* read_array(std::deque<std::vector<T>>& to) {
        const int count = read_int();
        if (!count) return nullptr;
        to.emplace_back(count);
        read(to.back().data(), size_t(count) * 4);
        return to.back().data();
    }

    explicit Case(int ops) {
        for (int i = 0; i < ops; i++) {
            Op op{};
            op.kind = Kind(read_int());
            for (int* field : {&op.h, &op.w, &op.c, &op.source, &op.add, &op.k, &op.stride}) *field = read_int();
            op.identity = read_int();
            op.prelu_after_add = read_int();
            const int branches = read_int();
            for (int b = 0; b < branches; b++) {
                Branch branch{};
                branch.dy = read_int();
                branch.dx = read_int();
                branch.threshold = read_array(floats);
                branch.weight = read_array(words);
                branch.scale = read_array(floats);
                branch.offset = read_array(floats);
                op.branches.push_back(branch);
            }
            for (const float** array : {&op.offset, &op.scale, &op.intensity, &op.weight, &op.slope}) *array = read_array(floats);
            model.push_back(op);
        }
        image.resize(size_t(model[0].h) * model[0].w * 3);
        read(image.data(), image.size());
        for (const Op& op : model) {
            maps.emplace_back(size_t(op.h) * op.w * op.c);
            read(maps.back().data(), maps.back().size() * 4);
        }
    }
};

bool equal(const float* a, const float* b, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (!(a[i] == b[i] || (a[i] != a[i] && b[i] != b[i]))) return false;
    return true;
}

void check(const Case& c, int number, const Kernels& kernels, int threads) {
    Engine engine(c.model, kernels, threads);
    std::vector<std::vector<float>> made;
    std::vector<float*> to;
    for (const auto& map : c.maps) made.emplace_back(map.size());
    for (auto& map : made) to.push_back(map.data());
    engine.maps(c.image.data(), to.data());
    for (size_t i = 0; i < made.size(); i++)
        if (!equal(made[i].data(), c.maps[i].data(), made[i].size())) {
            std::printf("program %d, %s, %d threads: map %zu differs\n", number, kernels.name, threads, i);
            failures++;
            break;
        }
    const size_t logits = engine.logits();
    for (size_t count : {1, 5}) {
        std::vector<uint8_t> images;
        for (size_t i = 0; i < count; i++) images.insert(images.end(), c.image.begin(), c.image.end());
        std::vector<float> out(count * logits);
        engine.run(images.data(), count, out.data());
        for (size_t i = 0; i < count; i++)
            if (!equal(out.data() + i * logits, c.maps.back().data(), logits)) {
                std::printf("program %d, %s, %d threads: logits of image %zu of %zu differ\n", number, kernels.name, threads, i, count);
                failures++;
            }
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2 || !(file = std::fopen(argv[1], "rb"))) {
        std::fprintf(stderr, "usage: core_test VECTORS\n");
        return 2;
    }
    int number = 0;
    for (int ops; (ops = read_int()); number++) {
        const Case c(ops);
        for (const Isa* isa = isas(); isa->kernels; isa++)
            if (isa->supported)
                for (int threads = 1; threads <= 4; threads++) check(c, number, *isa->kernels, threads);
    }
    std::printf("%d programs:", number);
    for (const Isa* isa = isas(); isa->kernels; isa++) std::printf(" %s%s", isa->kernels->name, isa->supported ? "" : " (not run)");
    std::printf(": %s\n", failures ? "FAILED" : "passed");
    return failures != 0;
}
