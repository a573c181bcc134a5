// Files that the build puts into the program (cmake/embed.cmake).
#pragma once

#include <cstdint>
#include <span>

namespace convgrad::train {

/// data/digits/images-idx3-ubyte
std::span<const std::uint8_t> digits_images();
/// data/digits/labels-idx1-ubyte
std::span<const std::uint8_t> digits_labels();

}  // namespace convgrad::train
