// A GPU for tests: memory that is watched for writes out of place, and problems that run on it.
#pragma once

#include <cstdlib>

#include <gtest/gtest.h>

#include "cuda/backend.hpp"
#include "cuda/plan.hpp"
#include "support/workbench.hpp"

namespace convgrad::test {

/// Why there is no GPU to test on; empty if there is one.
const std::string &why_no_gpu();

/// Skips a test without a GPU; fails it where CONVGRAD_REQUIRE_GPU is set.
#define CONVGRAD_NEEDS_GPU()                                                                       \
    if (!why_no_gpu().empty()) {                                                                   \
        if (std::getenv("CONVGRAD_REQUIRE_GPU") != nullptr) FAIL() << why_no_gpu();                \
        GTEST_SKIP() << why_no_gpu();                                                              \
    }

/// Why cuDNN cannot be tested; empty if it can.
const std::string &why_no_cudnn();

/// Skips a test without a GPU or without cuDNN.
#define CONVGRAD_NEEDS_CUDNN()                                                                     \
    CONVGRAD_NEEDS_GPU();                                                                          \
    if (!why_no_cudnn().empty()) GTEST_SKIP() << why_no_cudnn()

/// Of many cases every CONVGRAD_CUDA_SAMPLEth, where that is set: tools that watch a GPU are slow.
std::uint64_t sample_step();

/// Whether a kernel has work on a device: those of measurements have none, those that look after
/// cuDNN where it is.
bool has_work(cuda::kernel which, const cuda::architecture &on);
/// How often this program launched a kernel. (Not by the engine that it loads from its shared
/// object.) All that have work, one "name count" a line, are appended to the file
/// CONVGRAD_CUDA_KERNELS when the program ends: tests/cuda/kernels.sh names those that no program
/// launched.
std::uint64_t launches_of(cuda::kernel which);

/// Driver functions that only tests need.
struct test_driver {
    CUresult (*alloc)(CUdeviceptr *, std::size_t);
    CUresult (*alloc_managed)(CUdeviceptr *, std::size_t, unsigned);
    CUresult (*alloc_host)(void **, std::size_t);
    CUresult (*free)(CUdeviceptr);
    CUresult (*copy_in)(CUdeviceptr, const void *, std::size_t);
    CUresult (*copy_out)(void *, CUdeviceptr, std::size_t);
    CUresult (*fill)(CUdeviceptr, unsigned char, std::size_t);
    CUresult (*begin_capture)(CUstream, CUstreamCaptureMode);
    CUresult (*end_capture)(CUstream, CUgraph *);
    CUresult (*instantiate)(CUgraphExec *, CUgraph, unsigned long long);
    CUresult (*launch_graph)(CUgraphExec, CUstream);
    CUresult (*memory_info)(std::size_t *, std::size_t *);
    CUresult (*current)(CUcontext *);
    /// The emulator's alone, else null: what a device answers from now on to launches, and to all.
    void (*answer)(int device, CUresult of_launches, CUresult of_all);
};
const test_driver &tests_driver();

/// Memory of the GPU, between canaries.
class gpu_memory {
public:
    gpu_memory() = default;
    explicit gpu_memory(std::size_t bytes, int device = 0) : device_(device) { resize(bytes); }
    ~gpu_memory();
    gpu_memory(const gpu_memory &) = delete;
    gpu_memory &operator=(const gpu_memory &) = delete;

    /// Whatever is allocated from now on is memory of this device.
    void move_to(int device) { device_ = device; }
    /// `offset` bytes behind an aligned address.
    void resize(std::size_t bytes, std::size_t offset = 0);
    [[nodiscard]] void *data() const;
    void copy_in(const void *from, std::size_t bytes);
    void copy_out(void *to, std::size_t bytes) const;
    void fill(unsigned char with);
    /// Whether nobody wrote before or behind it.
    [[nodiscard]] bool is_intact() const;

private:
    int device_ = 0;
    CUdeviceptr base_ = 0;
    std::size_t bytes_ = 0, room_ = 0, start_ = 0;  // start: of the data
};

/// Puts a NaN or an infinity somewhere into half of what the problem of a workbench reads.
void plant_special_values(workbench &bench, rng &random);

/// Runs the problem of a workbench on the GPU, its results where the workbench compares them.
class gpu_bench {
public:
    explicit gpu_bench(int device = 0);

    /// Throws what make_plan throws. The name of the algorithm that ran.
    std::string run(workbench &on, std::string_view algorithm = {},
        std::size_t workspace_limit = std::numeric_limits<std::size_t>::max());

    /// The kernels that run() would launch, in turn. Throws what make_plan throws.
    std::vector<cuda::kernel> kernels_of(workbench &on, std::string_view algorithm = {});

    /// Tensors start one element behind an aligned address.
    void misalign(bool on) { misaligned_ = on; }
    /// cuDNN may compute too. Throws where it is missing.
    void allow_cudnn();
    /// How the last problem ran.
    [[nodiscard]] const std::string &description() const { return description_; }
    [[nodiscard]] const cuda::architecture &arch() const { return arch_; }
    [[nodiscard]] const cuda::device &device() const { return device_; }
    [[nodiscard]] cuda::lane &lane() { return lane_; }

private:
    /// Puts the tensors on the device, and the plan's work on the lane.
    std::unique_ptr<const engines::plan> queue(
        workbench &on, std::string_view algorithm, std::size_t workspace_limit);
    /// Waits, and brings back what was written.
    void collect(workbench &on);

    const cuda::device &device_;
    cuda::architecture arch_;
    cuda::lane lane_;
    std::string description_;
    std::array<gpu_memory, 5> tensors_;
    gpu_memory workspace_;
    conv::buffers data_{};  // on the device
    bool misaligned_ = false;
};

}  // namespace convgrad::test
