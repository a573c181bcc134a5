#include "cuda/tools.hpp"

#include <algorithm>

#include "cuda/backend.hpp"

namespace convgrad::cuda {
namespace {

CUdeviceptr address(const void *memory) {
    return reinterpret_cast<CUdeviceptr>(memory);
}

void *allocate(int device, std::size_t bytes) {
    const cuda::device &on = the_device(device);
    const current here(on);
    CUdeviceptr made = 0;
    on.check(the_driver().cuMemAlloc(&made, std::max<std::size_t>(bytes, 1)), "taking memory");
    return reinterpret_cast<void *>(made);
}

void release(int device, void *memory) noexcept {
    const driver &cu = the_driver();
    if (cu.cuCtxPushCurrent(the_device(device).context) != CUDA_SUCCESS) return;
    cu.cuMemFree(address(memory));
    CUcontext popped = nullptr;
    cu.cuCtxPopCurrent(&popped);
}

void copy_in(int device, void *to, const void *from, std::size_t bytes) {
    const cuda::device &on = the_device(device);
    const current here(on);
    if (bytes > 0) on.check(the_driver().cuMemcpyHtoD(address(to), from, bytes), "copying");
}

void copy_out(int device, void *to, const void *from, std::size_t bytes) {
    const cuda::device &on = the_device(device);
    const current here(on);
    if (bytes > 0) on.check(the_driver().cuMemcpyDtoH(to, address(from), bytes), "copying");
}

class event {
public:
    explicit event(const device &on) : on_(on) {
        on_.check(the_driver().cuEventCreate(&event_, CU_EVENT_DEFAULT), "making an event");
    }
    ~event() { the_driver().cuEventDestroy(event_); }
    event(const event &) = delete;
    event &operator=(const event &) = delete;

    void record(CUstream stream) {
        on_.check(the_driver().cuEventRecord(event_, stream), "recording an event");
    }
    /// Waits for this one.
    double seconds_since(const event &first) {
        const driver &cu = the_driver();
        on_.check(cu.cuEventSynchronize(event_), "waiting for an event");
        float ms = 0;
        on_.check(cu.cuEventElapsedTime(&ms, first.event_, event_), "reading an event");
        return ms * 1e-3;
    }

private:
    const device &on_;
    CUevent event_ = nullptr;
};

template <typename Work>
double seconds_of(const lane &on, Work &&work) {
    const current here(on.on());
    event first(on.on()), last(on.on());
    first.record(on.stream());
    work();
    last.record(on.stream());
    return last.seconds_since(first);
}

double seconds(const engines::lane &on, void (*work)(void *context), void *context) {
    return seconds_of(static_cast<const lane &>(on), [&] { work(context); });
}

/// The best of several runs.
template <typename Work>
double best_seconds(const lane &on, Work &&work) {
    constexpr int runs = 6;
    double best = 1e30;
    for (int i = 0; i < runs; ++i) best = std::min(best, seconds_of(on, work));
    return best;
}

device_peaks peaks(int device) {
    const cuda::device &on = the_device(device);
    const current here(on);
    lane queue(on, nullptr);
    device_peaks made;
    const wide blocks = static_cast<wide>(on.multiprocessors) * peak_blocks;
    const double threads = static_cast<double>(blocks) * peak_threads;

    peak_args args{};
    auto *const sink = static_cast<float *>(allocate(device, sizeof(float)));
    args.out = sink;
    args.rounds = 2000;
    const auto run = [&](kernel which) {
        return best_seconds(queue, [&] { queue.launch(which, blocks, peak_threads, &args); });
    };
    made.fma = 2.0 * peak_fma_chains * peak_unroll * args.rounds * threads / run(kernel::peak_fma);
    made.tensor =
        2.0 * 16 * 8 * 16 * peak_mma_chains * args.rounds * (threads / 32) / run(kernel::peak_mma);

    constexpr std::size_t cached = std::size_t{8} << 20;
    const std::size_t large = std::min(std::size_t{1} << 30, on.memory / 16);
    void *const from = allocate(device, large);
    args.data = from;
    args.bytes = cached;
    args.rounds = 64;
    made.l2 = static_cast<double>(cached) * args.rounds / run(kernel::peak_read);
    void *const to = allocate(device, large);
    made.memory = 2.0 * static_cast<double>(large) / best_seconds(queue, [&] {
        on.check(the_driver().cuMemcpyDtoDAsync(address(to), address(from), large, queue.stream()),
            "copying");
    });
    for (void *memory : {from, to, static_cast<void *>(sink)}) release(device, memory);
    return made;
}

}  // namespace

const device_tools tools_of_devices = {allocate, release, copy_in, copy_out, seconds, peaks};

}  // namespace convgrad::cuda
