// What libconvgrad_cuda.so offers to the library that loads it. Both come from one build: the
// version is compared, and then C++ objects pass between them.
#pragma once

#include "cuda/tools.hpp"
#include "engine/engine.hpp"

namespace convgrad::cuda {

struct entry {
    const char *version;  // of the library that it was built with
    std::shared_ptr<const engines::backend> (*make)(const engine_options &options);
    void (*release_scratch)() noexcept;
    /// One line for each device: "NVIDIA H200, compute capability 9.0, 132 multiprocessors, 139
    /// GiB".
    std::vector<std::string> (*devices)();
    const device_tools *tools;
};

inline constexpr const char *entry_name = "convgrad_cuda_entry";

}  // namespace convgrad::cuda
