// The engine for Python. The only file that knows Python; bcnn/engine.py is what people use.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <stdexcept>

#include "engine.h"

namespace nb = nanobind;
using namespace bcnn;

namespace {

using Floats = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;
using Words = nb::ndarray<const uint32_t, nb::c_contig, nb::device::cpu>;
using Images = nb::ndarray<const uint8_t, nb::ndim<4>, nb::c_contig, nb::device::cpu>;
using Image = nb::ndarray<const uint8_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Result = nb::ndarray<nb::numpy, float>;

// Ops added one by one. bcnn.program.program has checked them; arrays stay referenced until the engine has its own copies.
struct Builder {
    Model model;
    std::vector<nb::object> kept;

    template <class Array>
    const auto* keep(const Array& array) {
        kept.push_back(nb::cast(array));
        return array.data();
    }
    const float* keep(const std::optional<Floats>& array) { return array ? keep(*array) : nullptr; }

    Op& append(Kind kind, std::tuple<int, int, int> shape, int source) {
        const auto [h, w, c] = shape;
        if (h < 1 || w < 1 || c < 1 || source >= int(model.size()) || (source < 0) != model.empty())
            throw std::invalid_argument("op does not follow from the ones before it");
        Op op{};
        op.kind = kind;
        op.h = h;
        op.w = w;
        op.c = c;
        op.source = source;
        op.add = -1;
        op.k = source < 0 ? c : model[source].c;
        op.stride = 1;
        model.push_back(op);
        return model.back();
    }
};

const Kernels& kernels_of(const std::string& isa) {
    for (const Isa* i = isas(); i->kernels; i++)
        if (i->supported && isa == i->kernels->name) return *i->kernels;
    throw std::invalid_argument("this machine or build has no instruction set '" + isa + "'");
}

struct Core {
    std::unique_ptr<Engine> engine;
    std::vector<std::tuple<int, int, int>> shapes;

    Core(const Builder& builder, const std::string& isa, int threads) {
        if (builder.model.empty() || threads < 1) throw std::invalid_argument("an engine needs ops and at least one thread");
        const Kernels& kernels = kernels_of(isa);
        for (const Op& op : builder.model) shapes.emplace_back(op.h, op.w, op.c);
        nb::gil_scoped_release release;
        engine = std::make_unique<Engine>(builder.model, kernels, threads);
    }
    ~Core() {
        nb::gil_scoped_release release;  // joining threads
        engine.reset();
    }

    template <class Array>
    void check(const Array& images, size_t first) const {
        const auto [h, w, c] = shapes[0];
        if (images.shape(first) != size_t(h) || images.shape(first + 1) != size_t(w) || images.shape(first + 2) != 3)
            throw std::invalid_argument("images do not have the size of the program's input");
    }

    static Result array(std::vector<size_t> shape) {
        size_t size = 1;
        for (size_t n : shape) size *= n;
        float* data = new float[size];
        nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<float*>(p); });
        return Result(data, shape.size(), shape.data(), owner);
    }

    Result run(const Images& images) {
        check(images, 1);
        Result out = array({images.shape(0), engine->logits()});
        float* to = out.data();
        if (images.shape(0)) {
            nb::gil_scoped_release release;
            engine->run(images.data(), images.shape(0), to);
        }
        return out;
    }

    std::vector<Result> maps(const Image& image) {
        check(image, 0);
        std::vector<Result> out;
        std::vector<float*> to;
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
double dot_peak(const std::string& isa) {
    const Kernels& kernels = kernels_of(isa);
    nb::gil_scoped_release release;
    std::vector<uint64_t> scratch((kernels.scratch_bytes(1024) + 64) / 8 + 8);
    auto* aligned = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
    kernels.dot_peak(0, aligned);
    return gmacs([&] { return kernels.dot_peak(1000, aligned); });
}

// Binary GMAC/s of xor, popcount and add on registers alone, one thread.
double popcount_peak(const std::string& isa) {
    const Kernels& kernels = kernels_of(isa);
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

    using Shape = std::tuple<int, int, int>;
    nb::class_<Builder>(m, "Builder")
        .def(nb::init<>())
        .def("input", [](Builder& b, Shape shape, Floats scale, Floats offset, std::optional<Floats> intensity) {
            Op& op = b.append(Kind::input, shape, -1);
            op.scale = b.keep(scale);
            op.offset = b.keep(offset);
            op.intensity = b.keep(intensity);
        }, nb::arg("shape"), nb::arg("scale"), nb::arg("offset"), nb::arg("intensity").none())
        .def("binary_conv", [](Builder& b, Shape shape, int source, int k, bool identity, std::optional<Floats> slope,
                               std::optional<int> add, bool prelu_after_add) {
            Op& op = b.append(Kind::binary_conv, shape, source);
            op.k = k;
            op.identity = identity;
            op.slope = b.keep(slope);
            op.add = add.value_or(-1);
            op.prelu_after_add = prelu_after_add;
        }, nb::arg("shape"), nb::arg("source"), nb::arg("k"), nb::arg("identity"), nb::arg("slope").none(),
           nb::arg("add").none(), nb::arg("prelu_after_add"))
        .def("branch", [](Builder& b, Floats threshold, Words weight, Floats scale, Floats offset, int dy, int dx) {
            b.model.back().branches.push_back({b.keep(threshold), b.keep(weight), b.keep(scale), b.keep(offset), dy, dx});
        }, nb::arg("threshold"), nb::arg("weight"), nb::arg("scale"), nb::arg("offset"), nb::arg("dy"), nb::arg("dx"))
        .def("depthwise_conv", [](Builder& b, Shape shape, int source, Floats weight, Floats offset,
                                  std::optional<Floats> slope, int stride) {
            Op& op = b.append(Kind::depthwise, shape, source);
            op.k = op.c;
            op.weight = b.keep(weight);
            op.offset = b.keep(offset);
            op.slope = b.keep(slope);
            op.stride = stride;
        }, nb::arg("shape"), nb::arg("source"), nb::arg("weight"), nb::arg("offset"), nb::arg("slope").none(), nb::arg("stride"))
        .def("avg_pool", [](Builder& b, Shape shape, int source, int stride) {
            b.append(Kind::avg_pool, shape, source).stride = stride;
        }, nb::arg("shape"), nb::arg("source"), nb::arg("stride"))
        .def("channel_avg", [](Builder& b, Shape shape, int source) { b.append(Kind::channel_avg, shape, source); },
             nb::arg("shape"), nb::arg("source"))
        .def("global_avg_pool", [](Builder& b, Shape shape, int source) { b.append(Kind::global_avg_pool, shape, source); },
             nb::arg("shape"), nb::arg("source"))
        .def("linear", [](Builder& b, Shape shape, int source, Floats weight, Floats bias) {
            Op& op = b.append(Kind::linear, shape, source);
            op.weight = b.keep(weight);
            op.offset = b.keep(bias);
        }, nb::arg("shape"), nb::arg("source"), nb::arg("weight"), nb::arg("bias"));

    nb::class_<Core>(m, "Engine")
        .def(nb::init<const Builder&, const std::string&, int>(), nb::arg("builder"), nb::arg("isa"), nb::arg("threads"))
        .def("run", &Core::run, nb::arg("images"))
        .def("maps", &Core::maps, nb::arg("image"))
        .def("profile", &Core::profile, nb::arg("image"), nb::arg("repeats"))
        .def_prop_ro("peak_memory", [](const Core& c) { return c.engine->peak_memory(); })
        .def_prop_ro("weight_memory", [](const Core& c) { return c.engine->weight_memory(); });
}
