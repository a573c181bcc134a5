// Engines (where to compute, with which threads and instruction sets) and streams.
#pragma once

#include <memory>

#include <convgrad/types.hpp>

namespace convgrad::engines {
class lane;
}  // namespace convgrad::engines

namespace convgrad {
inline namespace CONVGRAD_ABI {

/// A caller's thread pool. Implement it to run the library on threads that already exist.
class CONVGRAD_API thread_pool {
public:
    virtual ~thread_pool();
    /// How many calls of a body may run at the same time (at least 1).
    [[nodiscard]] virtual int concurrency() const noexcept = 0;
    /// Calls body(context, i) once for each i in [0, count), in any order, from any threads, and
    /// returns when all have returned. Bodies do not throw and do not wait for each other. May be
    /// called from several threads at once.
    /// If it throws (no body may run any more by then), the exception leaves the call that was
    /// executing, as it is but for std::bad_alloc and std::length_error, which become
    /// out_of_memory. That call's outputs may be partly written; all else can be used on.
    virtual void run(int count, void (*body)(void *context, int i), void *context) = 0;
};

/// Settings of an engine. Every field has a working default.
struct engine_options {
    engine_kind kind = engine_kind::cpu;
    /// Which device of this kind, from 0; a CPU engine takes 0 only.
    int device = 0;
    /// The most threads to use, at most 1024. 0: CONVGRAD_NUM_THREADS if set, else as many as there
    /// are: of the pool, of the process's OpenMP runtime, or the cores that this process may use
    /// (affinity and cgroup limits count).
    int threads = 0;
    /// The caller's pool; must outlive the engine's last execution. Each call asks it anew for its
    /// concurrency.
    thread_pool *pool = nullptr;
    /// Without a pool of the caller's: the library's own threads even where the process has an
    /// OpenMP runtime. By default work runs on that runtime's threads where one is loaded (two sets
    /// of threads would fight for the cores), as many as it says at each call.
    bool own_threads = false;
    /// The instruction set to use at most: it and those that it builds on, as far as the CPU and
    /// CONVGRAD_MAX_ISA allow.
    isa max_isa = isa::best;
    math_mode math = math_mode::accurate;
    /// Upper bound in bytes for the workspace of one execution; met by a slower plan, whose blocks,
    /// and so the order of sums and the last bits of results, may differ from those without the
    /// limit. With the same limit all bits are the same for every number of threads.
    std::size_t workspace_limit = std::numeric_limits<std::size_t>::max();
    /// CUDA: an installed cuDNN 9 computes dense layers that it is predicted to compute faster, by
    /// engines that it calls deterministic (docs/cuda.md). Bits then depend on its version.
    /// CONVGRAD_CUDNN=1 asks for it too. Without it that is an error; a CPU engine takes no notice.
    bool cudnn = false;
};

/// Where computation happens. Cheap to copy; copies share state. Of the library's own threads,
/// engines with the same number share one set, which starts with the first work for more than one
/// of them.
class CONVGRAD_API engine {
public:
    /// Default settings.
    engine();
    /// Throws invalid_argument for settings out of range, or a bad value of CONVGRAD_NUM_THREADS,
    /// CONVGRAD_MAX_ISA or CONVGRAD_CUDNN; unsupported if the engine of that kind, its driver, a
    /// device or a library that was asked for is missing.
    explicit engine(const engine_options &options);
    [[nodiscard]] engine_kind kind() const noexcept;
    /// Number of threads that an execution which begins now uses at most.
    [[nodiscard]] int threads() const noexcept;
    /// Whether such an execution runs on the threads of the process's OpenMP runtime.
    [[nodiscard]] bool shares_threads() const noexcept;
    /// The instruction set in use: the best one that the CPU, the environment and the options
    /// allow.
    [[nodiscard]] isa instruction_set() const noexcept;
    [[nodiscard]] math_mode math() const noexcept;
    [[nodiscard]] std::size_t workspace_limit() const noexcept;

    // Copies only: a moved-from engine would be one more state to check for.
    engine(const engine &) = default;
    engine &operator=(const engine &) = default;

    struct impl;
    /// For the library itself.
    explicit engine(std::shared_ptr<const impl> p) : impl_(std::move(p)) {}
    [[nodiscard]] const impl &get() const noexcept { return *impl_; }

private:
    std::shared_ptr<const impl> impl_;
};

/// The engine that calls without one use; created on first use.
CONVGRAD_API const engine &default_engine();

/// An in-order queue on an engine: executions on one stream run in the order of the calls, those on
/// different streams in any. A call refuses what it can refuse before it queues anything; then the
/// work may still be running when it returns (never on a CPU engine, where it is complete). Until
/// wait() has returned, tensors and a caller's workspace must stay as they are; engines, compiled
/// partitions and graphs may go. Shape inputs are host memory on every engine and are read during
/// the call. Scratch that the library takes by itself is reused in the order of the stream.
/// Cheap to copy; copies are the same queue.
class CONVGRAD_API stream {
public:
    /// `native`: the caller's own queue on the device, which must outlive the stream; null: one of
    /// the engine's. A CPU has none. CUDA: a cudaStream_t (CUstream) of the device's primary
    /// context; the default stream is cudaStreamLegacy, not null.
    explicit stream(const engine &on = default_engine(), void *native = nullptr);
    [[nodiscard]] const engine &get_engine() const noexcept { return engine_; }
    /// Returns when all work of this stream is complete: at once on a CPU. Throws device_failure if
    /// the device failed at or after the work of this stream, now and each time from then on.
    void wait() const;

    /// For the library itself.
    [[nodiscard]] engines::lane &get() const noexcept { return *lane_; }

private:
    engine engine_;
    std::shared_ptr<engines::lane> lane_;
};

/// The best instruction set that this CPU and operating system offer (environment not considered).
CONVGRAD_API isa detected_isa() noexcept;

/// Frees the scratch memory that the library keeps between executions (at most 256 MiB).
CONVGRAD_API void release_scratch() noexcept;

}  // namespace CONVGRAD_ABI
}  // namespace convgrad
