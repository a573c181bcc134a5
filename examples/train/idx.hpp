// The IDX format of MNIST: a magic number, big-endian sizes, then one byte per value.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace convgrad::train {

struct idx_array {
    std::vector<std::size_t> shape;
    std::vector<std::uint8_t> data;
};

/// Reads an array of bytes with `rank` axes. Throws std::runtime_error, which names `source` and
/// what is wrong with it, unless header and length agree exactly.
idx_array parse_idx(
    std::span<const std::uint8_t> bytes, std::size_t rank, const std::string &source);

/// The whole file, or, if it does not begin with `beginning`, some of it: whoever expects a format
/// need not read a device to its end, which it may not have. Throws std::runtime_error.
std::vector<std::uint8_t> read_file(const std::string &path, std::string_view beginning = {});

}  // namespace convgrad::train
