// The device code: fat binaries, machine code for several architectures and PTX for newer ones.
#pragma once

#include <span>
#include <string_view>

namespace convgrad::cuda {

/// What nvcc made of one file.
struct image {
    std::string_view file;  // without folder and extension
    const void *code;
};

std::span<const image> images();

}  // namespace convgrad::cuda
