#include "cuda/backend.hpp"

#include <algorithm>
#include <atomic>

#include <convgrad/error.hpp>

#include "cuda/cudnn_device.hpp"
#include "cuda/plan.hpp"

namespace convgrad::cuda {
namespace {

constexpr std::size_t scratch_alignment = 256;
constexpr wide longest_grid = 0x7fffffff;

std::atomic<unsigned> grid_limit{0};
std::atomic<bool (*)(kernel)> launch_watch{nullptr};

engines::backend_facts facts_of(const device &on) {
    return {.kind = engine_kind::cuda,
        .device = on.index,
        .set = isa::portable,
        .alignment = scratch_alignment};
}

}  // namespace

void limit_grids_for_testing(unsigned blocks) {
    grid_limit = blocks;
}

void watch_launches_for_testing(bool (*watch)(kernel)) {
    launch_watch = watch;
}

lane::lane(const device &on, CUstream native) : on_(on), stream_(native), own_(native == nullptr) {
    const current here(on_);
    const driver &cu = the_driver();
    if (own_) {
        // Waits for the default stream and is waited for by it, which is what callers expect who
        // know of no other.
        on_.check(cu.cuStreamCreate(&stream_, CU_STREAM_DEFAULT), "making a stream");
        return;
    }
    CUcontext context = nullptr;
    const CUresult code = cu.cuStreamGetCtx(native, &context);
    if (code != CUDA_SUCCESS)
        throw error(error_code::invalid_argument,
            "stream: " + on_.title() + ": the native queue cannot be used: " + cu.words(code));
    if (context != on_.context)
        throw error(error_code::invalid_argument,
            "stream: the native queue belongs to another device, or to a context that is not the "
            "primary one of "
                + on_.title());
}

lane::~lane() {
    if (!own_) return;
    const driver &cu = the_driver();
    if (cu.cuCtxPushCurrent(on_.context) != CUDA_SUCCESS) return;
    cu.cuStreamDestroy(stream_);
    CUcontext popped = nullptr;
    cu.cuCtxPopCurrent(&popped);
}

void lane::wait() {
    const current here(on_);
    on_.check(the_driver().cuStreamSynchronize(stream_), "waiting for a stream");
}

void lane::check() const {
    const current here(on_);
    const driver &cu = the_driver();
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    on_.check(cu.cuStreamIsCapturing(stream_, &capturing), "asking a stream");
    if (capturing != CU_STREAM_CAPTURE_STATUS_NONE) return;
    const relaxed_capture allowed;
    const CUresult code = cu.cuStreamQuery(stream_);
    if (code != CUDA_ERROR_NOT_READY) on_.check(code, "asking a stream");
}

void *lane::take(std::size_t bytes) {
    const current here(on_);
    CUdeviceptr taken = 0;
    const CUresult code = the_driver().cuMemAllocFromPoolAsync(&taken, bytes, on_.pool, stream_);
    if (code == CUDA_ERROR_OUT_OF_MEMORY)
        throw error(error_code::out_of_memory,
            on_.title() + ": " + std::to_string(bytes) + " bytes of scratch cannot be had");
    on_.check(code, "taking scratch");
    return reinterpret_cast<void *>(taken);
}

void lane::give_back(void *scratch, std::size_t) noexcept {
    const driver &cu = the_driver();
    if (cu.cuCtxPushCurrent(on_.context) != CUDA_SUCCESS) return;
    cu.cuMemFreeAsync(reinterpret_cast<CUdeviceptr>(scratch), stream_);
    CUcontext popped = nullptr;
    cu.cuCtxPopCurrent(&popped);
}

void lane::launch(
    kernel which, wide blocks, int threads, const void *args, std::size_t shared) const {
    if (blocks <= 0) return;
    const auto watch = launch_watch.load(std::memory_order_relaxed);
    if (watch != nullptr && !watch(which)) return;
    const unsigned limit = grid_limit.load(std::memory_order_relaxed);
    const wide most = limit == 0 ? longest_grid : std::min<wide>(limit, longest_grid);
    void *list[] = {const_cast<void *>(args)};
    const CUresult code =
        the_driver().cuLaunchKernel(on_.functions[static_cast<std::size_t>(which)],
            static_cast<unsigned>(std::min(blocks, most)), 1, 1, static_cast<unsigned>(threads), 1,
            1, static_cast<unsigned>(shared), stream_, list, nullptr);
    if (code != CUDA_SUCCESS) on_.check(code, (std::string("launching ") + name_of(which)).c_str());
}

backend::backend(const device &on, bool cudnn)
    : engines::backend(facts_of(on)), on_(on), arch_(on.arch) {
    if (!cudnn) return;
    arch_.cudnn_here = &cudnn_device::of(on);
    arch_.cudnn = true;
}

std::unique_ptr<const engines::plan> backend::make_plan(const conv::problem &p,
    const engines::plan_limits &limits, std::vector<engines::verdict> *verdicts) const {
    return cuda::make_plan(p, arch_, limits, verdicts);
}

std::unique_ptr<const engines::plan> backend::join(const engines::plan & /*data*/,
    const engines::plan & /*weights*/, const engines::plan_limits & /*limits*/) const {
    return nullptr;
}

bool backend::accepts(const engines::backend &other) const {
    return other.facts().kind == engine_kind::cuda && other.facts().device == facts().device;
}

const char *backend::refuse_memory(const void *data) const noexcept {
    const driver &cu = the_driver();
    CUmemorytype type{};
    unsigned managed = 0;
    int ordinal = -1;
    CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void *values[] = {&type, &managed, &ordinal};
    const CUresult code =
        cu.cuPointerGetAttributes(3, wanted, values, reinterpret_cast<CUdeviceptr>(data));
    if (code != CUDA_SUCCESS) return nullptr;
    if (managed != 0) return nullptr;
    if (type == CU_MEMORYTYPE_HOST) return "it is pinned memory of the host";
    if (type != CU_MEMORYTYPE_DEVICE) return "it is memory of the host";
    return ordinal == on_.index ? nullptr : "it is memory of another device";
}

std::shared_ptr<engines::lane> backend::open(void *native) const {
    return std::make_shared<lane>(on_, static_cast<CUstream>(native));
}

std::string backend::name() const {
    return on_.title() + (arch_.cudnn ? " with " + arch_.cudnn_here->version() : "");
}

}  // namespace convgrad::cuda
