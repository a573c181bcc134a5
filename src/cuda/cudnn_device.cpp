#include "cuda/cudnn_device.hpp"

#include <algorithm>

#include <convgrad/error.hpp>

namespace convgrad::cuda {
namespace {

std::string version_text(std::size_t version) {
    return "cuDNN " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100)
           + "." + std::to_string(version % 100);
}

/// Whether an engine gives the same bits each time, of sums that are as exact as a direct sum's.
/// Some that are not on tensor cores sum in 16 bits, or by Winograd's method, and have no note.
bool is_wanted(const cudnn_engine &e) {
    if (!e.has(cudnn_note::tensor_core)) return false;
    for (const cudnn_note unwanted : {cudnn_note::not_deterministic, cudnn_note::down_converts,
             cudnn_note::reduces_precision, cudnn_note::fft, cudnn_note::winograd,
             cudnn_note::winograd_4x4, cudnn_note::winograd_6x6, cudnn_note::winograd_13x13})
        if (e.has(unwanted)) return false;
    return true;
}

}  // namespace

cudnn_device &cudnn_device::of(const device &on) {
    // Never destroyed, as devices are not.
    static auto *const guard = new std::mutex;
    static auto *const all = new std::map<int, std::unique_ptr<cudnn_device>>;
    const std::lock_guard lock(*guard);
    std::unique_ptr<cudnn_device> &slot = (*all)[on.index];
    if (slot == nullptr) slot.reset(new cudnn_device(on));
    return *slot;
}

cudnn_device::cudnn_device(const device &on) : on_(on) {
    const cudnn_library &dnn = the_cudnn();
    version_ = version_text(dnn.cudnnGetVersion());
    const current here(on_);
    const relaxed_capture allowed;
    if (const cudnn_status code = dnn.cudnnCreate(&handle_); code != cudnn_status::success)
        throw error(error_code::device_failure,
            on_.title() + ": starting " + version_ + ": " + dnn.cudnnGetErrorString(code));
}

cudnn_device::key cudnn_device::key_of(const question &asked) {
    const conv::problem &p = asked.problem;
    key made{static_cast<std::int64_t>(p.what), static_cast<std::int64_t>(p.type), p.mb, p.groups,
        p.ic, p.oc, asked.channels_last ? 1 : 0, static_cast<std::int64_t>(asked.weights_type),
        static_cast<std::int64_t>(asked.workspace_limit)};
    std::size_t next = 9;
    for (const conv::axis &a : p.x)
        for (const dim value : {a.src, a.dst, a.kernel, a.stride, a.dilation, a.pad})
            made[next++] = value;
    return made;
}

const cudnn_device::found *cudnn_device::find(const question &asked) {
    const key k = key_of(asked);
    const std::lock_guard lock(guard_);
    const auto known = plans_.find(k);
    if (known != plans_.end()) return known->second.get();
    return plans_.emplace(k, search(asked)).first->second.get();
}

std::unique_ptr<const cudnn_device::found> cudnn_device::search(const question &asked) const {
    const current here(on_);
    const relaxed_capture allowed;
    const cudnn_operation operation(
        asked.problem, asked.channels_last, asked.weights_type, handle_);
    // Of forward passes: stores 0 for an infinite sum in f16 (cuDNN 9.19), and has no note of that.
    constexpr std::int64_t loses_infinities = 47;
    for (const cudnn_engine &e : operation.engines()) {
        if (!is_wanted(e)) continue;
        if (asked.problem.what == conv::pass::forward && e.number == loses_infinities) continue;
        cudnn_execution ready(e, handle_);
        if (!ready.is_ready() || ready.workspace() > asked.workspace_limit) continue;
        return std::make_unique<const found>(found{std::move(ready), e.number});
    }
    return nullptr;
}

void cudnn_device::run(
    const found &what, const conv::buffers &data, void *workspace, const lane &on) {
    const cudnn_library &dnn = the_cudnn();
    const relaxed_capture allowed;  // an engine's first execution loads its code
    const std::lock_guard lock(guard_);
    cudnn_status code = dnn.cudnnSetStream(handle_, on.stream());
    if (code == cudnn_status::success) code = what.ready.run(data, workspace, handle_);
    if (code != cudnn_status::success)
        throw error(error_code::device_failure, on_.title() + ": " + version_ + ", engine "
                                                    + std::to_string(what.engine) + ": "
                                                    + dnn.cudnnGetErrorString(code));
}

}  // namespace convgrad::cuda
