// The memory and the clock of the GPU behind an engine, for `train`.
#pragma once

#include <convgrad/engine.hpp>

#include "train/device.hpp"

namespace convgrad::cli {

class gpu_device final : public train::device {
public:
    /// Of a CUDA engine.
    explicit gpu_device(const engine &on);

    [[nodiscard]] void *allocate(std::size_t bytes) override;
    void release(void *memory) noexcept override;
    void copy_in(void *to, const void *from, std::size_t bytes) override;
    void copy_out(void *to, const void *from, std::size_t bytes) override;
    double run(const stream &on, const std::function<void()> &work) override;

private:
    int number_;
};

}  // namespace convgrad::cli
