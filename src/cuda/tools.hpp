// What the command and benchmarks need of a device beside its engine: memory, times, peaks.
#pragma once

#include <cstddef>

namespace convgrad::engines {
class lane;
}

namespace convgrad::cuda {

/// Measured on a device: operations (two for a multiply-add) and bytes per second.
struct device_peaks {
    double fma = 0;     // f32
    double tensor = 0;  // bf16 with f32 sums, by mma
    double memory = 0;  // copies: read and written
    double l2 = 0;      // reads of what the second-level cache holds
};

/// Each throws what an engine would: out_of_memory, device_failure.
struct device_tools {
    void *(*allocate)(int device, std::size_t bytes);
    void (*release)(int device, void *memory) noexcept;
    void (*copy_in)(int device, void *to, const void *from, std::size_t bytes);
    void (*copy_out)(int device, void *to, const void *from, std::size_t bytes);
    /// Seconds that a lane's device spends on what `work` puts on it.
    double (*seconds)(const engines::lane &on, void (*work)(void *context), void *context);
    /// Takes about a tenth of a second.
    device_peaks (*peaks)(int device);
};

/// Those of this object.
extern const device_tools tools_of_devices;

}  // namespace convgrad::cuda
