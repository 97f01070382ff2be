// The engine for Python. The only file that knows Python, and it knows no op: bcnn/engine.py hands over records.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <stdexcept>

#include "engine.h"

namespace nb = nanobind;
using namespace bcnn;

namespace {

using Values = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using Images = nb::ndarray<const uint8_t, nb::ndim<4>, nb::c_contig, nb::device::cpu>;
using Image = nb::ndarray<const uint8_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Result = nb::ndarray<nb::numpy>;

// What Python hands over is taken apart by hand: nanobind's own conversions to strings and vectors end the process when
// there is no memory for them.
std::string text_of(nb::handle from) {
    Py_ssize_t size = 0;
    const char* const text = PyUnicode_AsUTF8AndSize(from.ptr(), &size);
    if (!text) throw nb::python_error();
    return std::string(text, size_t(size));
}

std::vector<int> numbers_of(nb::handle from) {
    std::vector<int> made;
    for (const nb::handle one : from) made.push_back(nb::cast<int>(one));
    return made;
}

// A bcnn.program.record.Record: kind, numbers, arrays, parts. `kept` holds the arrays until the engine has its own
// copies.
Record record_of(nb::handle from, std::vector<Values>& kept) {
    const nb::dict numbers(from[1]), arrays(from[2]), parts(from[3]);
    Record made;
    made.kind = text_of(nb::object(from[0]));
    for (const auto& [name, values] : numbers) made.numbers[text_of(name)] = numbers_of(values);
    for (const auto& [name, values] : arrays) {
        kept.push_back(nb::cast<Values>(values));
        const size_t bytes = kept.back().itemsize();
        if (bytes != 4 && bytes != 2) throw std::invalid_argument("a program's arrays have values of 2 or 4 bytes");
        made.arrays[text_of(name)] = {kept.back().data(), kept.back().size(), bytes};
    }
    for (const auto& [name, records] : parts)
        for (const nb::handle one : records) made.parts[text_of(name)].push_back(record_of(one, kept));
    return made;
}

const Kernels& kernels_of(const std::string& isa) {
    for (const Isa* i = isas(); i->kernels; i++)
        if (i->supported && isa == i->kernels->name) return *i->kernels;
    throw std::invalid_argument("this machine or build has no instruction set '" + isa + "'");
}

struct Core {
    std::unique_ptr<Engine> engine;
    std::vector<Shape> shapes;

    Core(const nb::list& ops, const nb::list& shapes_in, const nb::str& isa, int threads, bool least_memory) {
        if (threads < 1 || !shapes_in.size())
            throw std::invalid_argument("an engine needs ops and at least one thread");
        const Kernels& kernels = kernels_of(text_of(isa));
        std::vector<Values> kept;
        std::vector<Record> records;
        for (const nb::handle op : ops) records.push_back(record_of(op, kept));
        for (const nb::handle one : shapes_in) {
            const std::vector<int> shape = numbers_of(one);
            if (shape.size() != 3) throw std::invalid_argument("a shape is height, width and channels");
            shapes.push_back({shape[0], shape[1], shape[2]});
        }
        nb::gil_scoped_release release;
        engine = std::make_unique<Engine>(records, shapes, kernels, threads, least_memory ? Goal::memory : Goal::time);
    }
    ~Core() {
        nb::gil_scoped_release release;  // joining threads
        engine.reset();
    }

    template <class Array>
    void check(const Array& images, size_t first) const {
        const Shape& size = shapes[0];
        if (images.shape(first) != size_t(size.h) || images.shape(first + 1) != size_t(size.w) ||
            images.shape(first + 2) != 3)
            throw std::invalid_argument("images do not have the size of the program's input");
    }

    // float32, or int16 of a program in integers.
    Result array(std::vector<size_t> shape) const {
        size_t size = engine->value_bytes();
        for (size_t n : shape) size *= n;
        std::unique_ptr<uint8_t[]> data(new uint8_t[size]);
        nb::capsule owner(data.get(), [](void* p) noexcept { delete[] static_cast<uint8_t*>(p); });
        const nb::dlpack::dtype type = engine->value_bytes() == 4 ? nb::dtype<float>() : nb::dtype<int16_t>();
        return Result(data.release(), shape.size(), shape.data(), owner, nullptr, type);
    }

    Result run(const Images& images) {
        check(images, 1);
        Result out = array({images.shape(0), engine->logits()});
        void* const to = out.data();
        if (images.shape(0)) {
            nb::gil_scoped_release release;
            engine->run(images.data(), images.shape(0), to);
        }
        return out;
    }

    std::vector<Result> maps(const Image& image) {
        check(image, 0);
        std::vector<Result> out;
        std::vector<void*> to;
        for (const auto& [h, w, c] : shapes) {
            out.push_back(array({size_t(h), size_t(w), size_t(c)}));
            to.push_back(out.back().data());
        }
        nb::gil_scoped_release release;
        engine->maps(image.data(), to.data());
        return out;
    }

    std::vector<double> profile(const Image& image, int repeats) {
        check(image, 0);
        std::vector<double> seconds(shapes.size(), 0);
        nb::gil_scoped_release release;
        engine->profile(image.data(), repeats, seconds.data());
        return seconds;
    }
};

template <class Work>  // returns how many binary MACs it did
double gmacs(const Work& work) {
    const auto begin = std::chrono::steady_clock::now();
    const double macs = work();
    return macs / std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / 1e9;
}

// Binary GMAC/s of the innermost loop on data in L1, one thread.
double dot_peak(const nb::str& isa) {
    const Kernels& kernels = kernels_of(text_of(isa));
    nb::gil_scoped_release release;
    Aligned<uint8_t> scratch(kernels.peak_scratch);
    kernels.dot_peak(0, scratch.data());
    return gmacs([&] { return kernels.dot_peak(1000, scratch.data()); });
}

// Binary GMAC/s of xor, popcount and add on registers alone, one thread.
double popcount_peak(const nb::str& isa) {
    const Kernels& kernels = kernels_of(text_of(isa));
    nb::gil_scoped_release release;
    return gmacs([&] { return kernels.popcount_peak(10000); });
}

}  // namespace

NB_MODULE(_core, m) {
    m.def("isas", [] {
        std::vector<std::tuple<std::string, bool>> all;
        for (const Isa* i = isas(); i->kernels; i++) all.emplace_back(i->kernels->name, i->supported);
        return all;
    });
    m.def("dot_peak", &dot_peak, nb::arg("isa"));
    m.def("popcount_peak", &popcount_peak, nb::arg("isa"));
    nb::class_<Core>(m, "Engine")
        .def(nb::init<const nb::list&, const nb::list&, const nb::str&, int, bool>(), nb::arg("ops"), nb::arg("shapes"),
             nb::arg("isa"), nb::arg("threads"), nb::arg("least_memory"))
        .def("run", &Core::run, nb::arg("images"))
        .def("maps", &Core::maps, nb::arg("image"))
        .def("profile", &Core::profile, nb::arg("image"), nb::arg("repeats"))
        .def_prop_ro("peak_memory", [](const Core& c) { return c.engine->peak_memory(); })
        .def_prop_ro("weight_memory", [](const Core& c) { return c.engine->weight_memory(); });
}
