// Finds and loads the CUDA engine, which is a shared object of its own: this library needs no CUDA.
#pragma once

#include "cuda/tools.hpp"
#include "engine/engine.hpp"

namespace convgrad::cuda {

/// Throws unsupported if the object, the driver or a device is missing, and says which.
std::shared_ptr<const engines::backend> load_backend(const engine_options &options);
/// Nothing if the object was never loaded.
void release_scratch() noexcept;
/// Describes each device. Throws as load_backend() does.
std::vector<std::string> describe_devices();
/// Memory, times and peaks. Throws as load_backend() does.
const device_tools &tools();

}  // namespace convgrad::cuda
