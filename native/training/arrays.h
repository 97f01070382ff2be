// Arrays that Python hands over, checked for type, contiguity and size; used by the files that bind.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <string>

#include "training.h"

namespace bcnn::training {
namespace nb = nanobind;

template <class T>
using Array = nb::ndarray<T, nb::c_contig, nb::device::cpu>;

// The data of `object`, which must be an array of `size` elements of T.
template <class T>
T* data(nb::handle object, size_t size, const char* name) {
    Array<T> array;
    if (!nb::try_cast<Array<T>>(object, array, false))
        throw nb::type_error((std::string(name) + ": wrong type, layout or device").c_str());
    if (array.size() != size)
        throw nb::value_error(
            (std::string(name) + ": " + std::to_string(array.size()) + " elements, expected " + std::to_string(size))
                .c_str());
    return array.data();
}

inline float* floats(nb::handle object, size_t size, const char* name) { return data<float>(object, size, name); }

inline float* floats_or_null(nb::handle object, size_t size, const char* name) {
    return object.is_none() ? nullptr : floats(object, size, name);
}

inline nb::tuple sized(nb::handle object, size_t size, const char* name) {
    nb::tuple tuple = nb::cast<nb::tuple>(object);
    if (tuple.size() != size) throw nb::value_error((std::string(name) + ": a tuple of the wrong length").c_str());
    return tuple;
}

inline int checked_threads(int threads) {
    if (threads < 1 || threads > 1024) throw nb::value_error("threads must be from 1 to 1024");
    return threads;
}

void bind_tap_conv(nb::module_& m);

}  // namespace bcnn::training
