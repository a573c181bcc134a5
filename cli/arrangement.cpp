#include "arrangement.hpp"

#include <algorithm>
#include <cstring>

namespace convgrad::cli {
namespace {

/// splitmix64: reproducible on every machine.
struct draw {
    std::uint64_t state;

    std::uint64_t next() {
        std::uint64_t z = state += 0x9e3779b97f4a7c15U;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
        return z ^ (z >> 31);
    }
    dim below(dim bound) { return static_cast<dim>(next() % static_cast<std::uint64_t>(bound)); }
};

/// A gap behind an axis is at most an eighth of the axis where memory is large.
constexpr dim large = dim{1} << 16;

dims strides_with_gaps(const dims &shape, draw &random) {
    dim elements = 1;
    for (dim d : shape) elements *= d;
    dims strides(shape.size());
    // Vectors of adjacent channels are the rule, so most draws keep the innermost axis dense.
    dim next = elements < large && random.below(4) == 0 ? 2 : 1;
    for (std::size_t i = shape.size(); i-- > 0;) {
        strides[i] = next;
        next *= shape[i];
        const dim most = elements < large ? 5 : std::min<dim>(shape[i] / 8, 5);
        if (shape[i] > 1) next += random.below(most + 1);
    }
    return strides;
}

/// An axis steps by as much as one inside it, or by a number of those steps: two ways lead to the
/// same memory.
void overlap(const dims &shape, dims &strides, draw &random) {
    std::vector<std::size_t> axes;
    for (std::size_t i = 0; i < shape.size(); ++i)
        if (shape[i] > 1) axes.push_back(i);
    if (axes.size() < 2) return;
    const auto outer = static_cast<std::size_t>(random.below(static_cast<dim>(axes.size()) - 1));
    const std::size_t inner = axes[outer + 1];
    strides[axes[outer]] = strides[inner] * (1 + random.below(shape[inner] - 1));
}

dim places(const dims &shape, const dims &strides) {
    dim last = 0;
    for (std::size_t i = 0; i < shape.size(); ++i) {
        if (shape[i] == 0) return 0;
        last += (shape[i] - 1) * strides[i];
    }
    return last + 1;
}

}  // namespace

dims draw_strides(const dims &shape, const arrangement &how, bool is_output) {
    const bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
    if (how.what == arrangement::kind::packed || empty) return {};
    draw random{how.seed};
    dims strides = strides_with_gaps(shape, random);
    if (how.what == arrangement::kind::overlapping && !is_output) overlap(shape, strides, random);
    return strides;
}

dims packed_strides(const dims &shape) {
    dims strides(shape.size(), 1);
    for (std::size_t i = shape.size(); i-- > 1;)
        strides[i - 1] = strides[i] * std::max<dim>(shape[i], 1);
    return strides;
}

void for_elements(const dims &shape, const dims &strides, const std::function<void(dim)> &body) {
    if (places(shape, strides) == 0) return;
    dims index(shape.size());
    dim offset = 0;
    while (true) {
        body(offset);
        std::size_t axis = shape.size();
        while (axis-- > 0) {
            offset += strides[axis];
            if (++index[axis] < shape[axis]) break;
            offset -= strides[axis] * shape[axis];
            index[axis] = 0;
        }
        if (axis > shape.size()) return;  // the count of axes ran out
    }
}

std::vector<std::byte> scatter(
    const void *packed, std::size_t size, const dims &shape, const dims &strides) {
    std::vector<std::byte> memory(
        static_cast<std::size_t>(places(shape, strides)) * size, std::byte{0xff});
    const auto *from = static_cast<const std::byte *>(packed);
    for_elements(shape, strides, [&](dim offset) {
        std::memcpy(memory.data() + static_cast<std::size_t>(offset) * size, from, size);
        from += size;
    });
    return memory;
}

std::vector<bool> element_places(const dims &shape, const dims &strides) {
    std::vector<bool> used(static_cast<std::size_t>(places(shape, strides)));
    for_elements(
        shape, strides, [&](dim offset) { used[static_cast<std::size_t>(offset)] = true; });
    return used;
}

}  // namespace convgrad::cli
