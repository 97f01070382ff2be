// An op as the engine is handed it: a flat record, as bcnn/program/record.py makes it. What each field means stands in
// the op's class in bcnn/program/ops, which has checked it. Arrays are views of the caller's memory, alive only while
// an Engine is made.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace bcnn {

struct Array {
    const void* data;
    size_t size;   // values
    size_t bytes;  // of one: 4, or 2 for int16
};

struct Record {
    std::string kind;
    std::map<std::string, std::vector<int>> numbers;
    std::map<std::string, Array> arrays;
    std::map<std::string, std::vector<Record>> parts;

    int number(const std::string& name, size_t at = 0) const {
        const auto found = numbers.find(name);
        if (found == numbers.end() || at >= found->second.size())
            throw std::invalid_argument(kind + " has no number " + name);
        return found->second[at];
    }
    const std::vector<int>& list(const std::string& name) const {
        const auto found = numbers.find(name);
        if (found == numbers.end()) throw std::invalid_argument(kind + " has no numbers " + name);
        return found->second;
    }
    // None if the field is absent; of another size than `count`, an error.
    const void* data(const std::string& name, size_t count, size_t bytes = 4) const {
        const auto found = arrays.find(name);
        if (found == arrays.end()) return nullptr;
        if (found->second.size != count || found->second.bytes != bytes)
            throw std::invalid_argument(kind + ": array " + name + " has another size");
        return found->second.data;
    }
    const float* floats(const std::string& name, size_t count) const {
        return static_cast<const float*>(data(name, count));
    }
    const uint32_t* words(const std::string& name, size_t count) const {
        return static_cast<const uint32_t*>(data(name, count));
    }
    const int32_t* indices(const std::string& name, size_t count) const {
        return static_cast<const int32_t*>(data(name, count));
    }
    const int16_t* shorts(const std::string& name, size_t count) const {
        return static_cast<const int16_t*>(data(name, count, 2));
    }
    size_t size(const std::string& name) const {
        const auto found = arrays.find(name);
        return found == arrays.end() ? 0 : found->second.size;
    }
    const std::vector<Record>& list_of(const std::string& name) const {
        static const std::vector<Record> none;
        const auto found = parts.find(name);
        return found == parts.end() ? none : found->second;
    }
    const Record& part(const std::string& name) const {
        const auto& all = list_of(name);
        if (all.size() != 1) throw std::invalid_argument(kind + " has no " + name);
        return all[0];
    }
};

struct Shape {
    int h, w, c;
};

}  // namespace bcnn
