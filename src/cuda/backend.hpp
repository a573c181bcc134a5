// The CUDA engine behind engines::backend.
#pragma once

#include "cuda/device.hpp"
#include "engine/backend.hpp"

namespace convgrad::cuda {

/// A stream of a device: the caller's or an own one.
class lane final : public engines::lane {
public:
    lane(const device &on, CUstream native);
    ~lane() override;

    void wait() override;
    void check() const override;
    void *take(std::size_t bytes) override;
    void give_back(void *scratch, std::size_t bytes) noexcept override;

    [[nodiscard]] const device &on() const { return on_; }
    [[nodiscard]] CUstream stream() const { return stream_; }
    /// Puts a kernel on the stream; `args` is its one argument. The device must be current.
    /// `blocks` beyond the longest grid are the kernel's to loop over.
    void launch(
        kernel which, wide blocks, int threads, const void *args, std::size_t shared = 0) const;

private:
    const device &on_;
    CUstream stream_ = nullptr;
    bool own_ = false;
};

class backend final : public engines::backend {
public:
    /// `cudnn`: it may compute too. Throws as cudnn_device::of().
    backend(const device &on, bool cudnn);

    [[nodiscard]] std::unique_ptr<const engines::plan> make_plan(const conv::problem &p,
        const engines::plan_limits &limits, std::vector<engines::verdict> *verdicts) const override;
    [[nodiscard]] std::unique_ptr<const engines::plan> join(const engines::plan &data,
        const engines::plan &weights, const engines::plan_limits &limits) const override;
    [[nodiscard]] bool accepts(const engines::backend &other) const override;
    [[nodiscard]] const char *refuse_memory(const void *data) const noexcept override;
    [[nodiscard]] std::shared_ptr<engines::lane> open(void *native) const override;
    [[nodiscard]] std::string name() const override;

private:
    const device &on_;
    architecture arch_;
};

/// Tests only: no launch has more blocks than this (0: no limit). Results must not change.
void limit_grids_for_testing(unsigned blocks);

/// Tests only: `watch` sees every kernel before it is launched, and says whether it shall be (null:
/// all are). Any thread may launch.
void watch_launches_for_testing(bool (*watch)(kernel));

}  // namespace convgrad::cuda
