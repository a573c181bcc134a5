// One GPU: what it is (plain data, so that plans can be made for devices that are not here), and
// its loaded kernels.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>

#include <convgrad/types.hpp>

#include "cuda/driver.hpp"
#include "cuda/kernels/args.hpp"

namespace convgrad::cuda {

class cudnn_device;

/// Every kernel, by name.
enum class kernel : std::uint16_t {
#define CONVGRAD_KERNEL(file, name) name,
#include "cuda/kernels/kernels.inc"
#undef CONVGRAD_KERNEL
    count
};

/// The name of a kernel in the device code.
const char *name_of(kernel k);
/// The file of device code that holds it, without folder and extension.
std::string_view file_of(kernel k);

/// The row of three kernels, for f32, bf16 and f16, that starts with `f32`.
inline kernel of_type(kernel f32, data_type type) {
    const int step = type == data_type::f32 ? 0 : type == data_type::bf16 ? 1 : 2;
    return static_cast<kernel>(static_cast<int>(f32) + step);
}

/// All that may decide how a problem is computed: equal for all devices of one architecture, so
/// that the same problem gives the same bits on each of them.
struct architecture {
    int major = 0, minor = 0;  // compute capability
    // Rates of a nominal device, for predictions.
    double fma = 0;           // f32 multiply-adds per second
    double tensor = 0;        // bf16 multiply-adds per second on tensor cores
    double memory = 0;        // bytes per second
    bool warpgroups = false;  // products of warpgroups, and code for them in this build
    // What the caller allows beside, which bits then depend on.
    bool cudnn = false;                  // dense layers by cuDNN
    cudnn_device *cudnn_here = nullptr;  // which makes its plans; null: they are predicted only
};

/// The nominal description of a compute capability.
architecture architecture_of(int major, int minor);

/// A device of this process. Made once for each, never destroyed.
struct device {
    int index = 0;
    std::string name;
    architecture arch;
    int multiprocessors = 0;
    std::size_t memory = 0;  // bytes
    CUdevice handle = 0;
    CUcontext context = nullptr;
    CUmemoryPool pool = nullptr;
    std::array<CUfunction, static_cast<std::size_t>(kernel::count)> functions{};

    /// "cuda device 0 (NVIDIA H200)".
    [[nodiscard]] std::string title() const;
    /// Throws the error that fits what the driver answered; nothing on success.
    void check(CUresult code, const char *what) const;
};

/// How many devices there are. Throws as the_driver() does.
int device_count();
/// Throws invalid_argument if there is no such device, unsupported if it is too old.
const device &the_device(int index);
/// Gives memory that is kept for scratch back to the driver, on all devices in use.
void trim_pools() noexcept;

/// Makes a device's context current.
class current {
public:
    explicit current(const device &on);
    ~current();
    current(const current &) = delete;
    current &operator=(const current &) = delete;
};

/// Allows what only a capture by another thread would forbid.
class relaxed_capture {
public:
    relaxed_capture() { the_driver().cuThreadExchangeStreamCaptureMode(&mode_); }
    ~relaxed_capture() { the_driver().cuThreadExchangeStreamCaptureMode(&mode_); }
    relaxed_capture(const relaxed_capture &) = delete;
    relaxed_capture &operator=(const relaxed_capture &) = delete;

private:
    CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace convgrad::cuda
