// How the tensors of a case lie in memory: packed, with memory between the elements that is not
// theirs, or (inputs) with elements that share memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include <convgrad/types.hpp>

namespace convgrad::cli {

struct arrangement {
    enum class kind : std::uint8_t { packed, gaps, overlapping };
    kind what = kind::packed;
    std::uint64_t seed = 0;
};

/// Random strides for a tensor, by the seed; empty (packed) if that is asked for, or if the tensor
/// has no elements. Outputs cannot share memory: they get gaps instead.
dims draw_strides(const dims &shape, const arrangement &how, bool is_output);

/// Strides of a packed tensor.
dims packed_strides(const dims &shape);

/// Calls body(offset) for the elements of a tensor in the order in which packed memory has them.
void for_elements(const dims &shape, const dims &strides, const std::function<void(dim)> &body);

/// Packed elements of `size` bytes each, moved to where the strides say. What lies between them is
/// 0xff, which is NaN in every type. Of elements that share memory, the last one stays.
std::vector<std::byte> scatter(
    const void *packed, std::size_t size, const dims &shape, const dims &strides);

/// One flag for each place of such memory: does an element lie there?
std::vector<bool> element_places(const dims &shape, const dims &strides);

}  // namespace convgrad::cli
