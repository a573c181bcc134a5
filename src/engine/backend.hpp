// What an engine is, for everything above it: plans, lanes and the backend that makes both.
//
// Layer: below src/graph, which plans and executes through this file alone; above src/cpu and every
// other backend. Knows no pool, no vector register and no driver of a device.
//
// Execution may be asynchronous. A lane is an in-order queue: what is put on it runs in that order,
// and its scratch is taken and given back in the same order, so that memory given back may serve
// the next execution at once. The host waits in lane::wait() only. Everything that can be refused
// is refused before anything is put on a lane.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <convgrad/engine.hpp>

#include "conv/problem.hpp"

namespace convgrad::engines {

/// How exact an algorithm is; a math mode allows the class of its name and those before it.
enum class accuracy : std::uint8_t {
    strict,  ///< every element within the bound of a direct f32 sum
    /// Rms error at most that of a plain f32 chain on data of one scale; three TF32 products of a
    /// GPU: of chains of 32 and more terms (docs/accuracy.md).
    accurate,
    fast,  ///< within a factor that the algorithm states
};

/// The math mode that asks for a class, and has its name.
constexpr math_mode mode_of(accuracy kept) noexcept {
    static_assert(static_cast<int>(math_mode::strict) == static_cast<int>(accuracy::strict)
                  && static_cast<int>(math_mode::accurate) == static_cast<int>(accuracy::accurate)
                  && static_cast<int>(math_mode::fast) == static_cast<int>(accuracy::fast));
    return static_cast<math_mode>(kept);
}
constexpr bool is_allowed(accuracy kept, math_mode mode) noexcept {
    return mode_of(kept) <= mode;
}

/// What a plan may use.
struct plan_limits {
    std::size_t workspace = std::numeric_limits<std::size_t>::max();
    /// Non-empty: only the algorithm of this name (tests, benchmarks, explain).
    std::string_view only_algorithm = {};
};

/// An algorithm that was weighed and not taken.
struct verdict {
    std::string_view algorithm;
    std::string_view uses;             // see plan_facts
    double seconds = 0;                // as predicted, of one nominal core or device; 0: refused
    accuracy kept = accuracy::strict;  // of those that could compute the problem
    double error = 0;                  // see plan_facts
    std::string reason;
};

/// Plain data: asking for it is no virtual call.
struct plan_facts {
    std::string_view algorithm;  // e.g. "tiled.fma"
    std::string_view uses;       // of the device, e.g. the instruction set "avx512"
    std::size_t workspace = 0;   // bytes that an execution needs
    accuracy kept = accuracy::strict;
    double seconds = 0;  // as predicted; see verdict
    double error = 0;    // rms, in terms of a plain f32 sum's, as measured; 0: the class says all
    std::size_t prepared = 0;  // bytes of what prepare() makes; 0: nothing
};

/// One in-order queue of a backend.
class lane {
public:
    lane() = default;
    lane(const lane &) = delete;
    lane &operator=(const lane &) = delete;
    virtual ~lane() = default;

    /// Returns when all work is complete. Throws device_failure, and from then on again each time.
    virtual void wait() = 0;
    /// Throws what wait() would throw by now, without waiting.
    virtual void check() const = 0;
    /// Scratch for work that is put on this lane next, aligned as the backend says. Throws
    /// out_of_memory. `bytes` is not 0.
    virtual void *take(std::size_t bytes) = 0;
    /// Gives it back: behind all work that is on the lane now.
    virtual void give_back(void *scratch, std::size_t bytes) noexcept = 0;
};

/// Scratch of one execution, taken in the order of a lane.
class scratch_lease {
public:
    scratch_lease(lane &on, std::size_t bytes)
        : on_(on), bytes_(bytes), data_(bytes == 0 ? nullptr : on.take(bytes)) {}
    ~scratch_lease() {
        if (data_ != nullptr) on_.give_back(data_, bytes_);
    }
    scratch_lease(const scratch_lease &) = delete;
    scratch_lease &operator=(const scratch_lease &) = delete;

    [[nodiscard]] void *data() const { return data_; }

private:
    lane &on_;
    std::size_t bytes_;
    void *data_;
};

/// An immutable decision how to compute; any number of threads may execute it at once. It owns host
/// memory only, and nothing that is on a lane refers to it: it may die as soon as execute() has
/// returned.
class plan {
public:
    plan() = default;
    plan(const plan &) = delete;
    plan &operator=(const plan &) = delete;
    virtual ~plan() = default;

    [[nodiscard]] const plan_facts &facts() const { return facts_; }
    [[nodiscard]] std::string_view algorithm() const { return facts_.algorithm; }
    [[nodiscard]] std::size_t workspace() const { return facts_.workspace; }
    /// Blocks and tiles, for explain and logs: "tile 4x14 oc 64 ic 64".
    [[nodiscard]] virtual std::string describe() const = 0;
    /// Puts all work on a lane of a backend that accepts the plan (see backend::accepts), one
    /// entry of `data` for each problem of the plan. `workspace` has facts().workspace bytes.
    /// Neither waits nor copies from the host, so it can be captured.
    virtual void execute(std::span<const conv::buffers> data, void *workspace, lane &on) const = 0;
    /// Of constant weights: the form that executions with these weights may be given as
    /// buffers::prepared, for the same bits in less time. Only where facts().prepared is not 0.
    /// Throws out_of_memory. Work that is on a lane keeps what it uses.
    [[nodiscard]] virtual std::shared_ptr<const void> prepare(
        const conv::buffers & /*data*/, void * /*workspace*/, lane & /*on*/) const {
        return nullptr;
    }

protected:
    plan_facts facts_;
};

/// What a backend tells about itself.
struct backend_facts {
    engine_kind kind = engine_kind::cpu;
    int device = 0;
    isa set = isa::portable;
    std::size_t alignment = 64;  // of workspaces
};

/// One device with its settings. Immutable.
class backend : public std::enable_shared_from_this<backend> {
public:
    explicit backend(const backend_facts &facts) : facts_(facts) {}
    backend(const backend &) = delete;
    backend &operator=(const backend &) = delete;
    virtual ~backend() = default;

    [[nodiscard]] const backend_facts &facts() const { return facts_; }

    /// Threads of the process that compute at most, in work that begins now; 1 where the device has
    /// threads of its own.
    [[nodiscard]] virtual int threads() const noexcept { return 1; }
    /// Whether they belong to the process's OpenMP runtime.
    [[nodiscard]] virtual bool shares_threads() const noexcept { return false; }
    /// Never null and never refuses a legal problem, except with out_of_memory when the workspace
    /// limit is below what the leanest plan needs. Costs microseconds. `verdicts` (optional)
    /// receives every algorithm that was not taken, with the reason.
    [[nodiscard]] virtual std::unique_ptr<const plan> make_plan(const conv::problem &p,
        const plan_limits &limits, std::vector<verdict> *verdicts = nullptr) const = 0;
    /// Both gradients of a layer as one plan, whose execution takes the data of the two in this
    /// order; null if they gain nothing by going together. Refers to both plans, made by this
    /// backend.
    [[nodiscard]] virtual std::unique_ptr<const plan> join(
        const plan &data, const plan &weights, const plan_limits &limits) const = 0;
    /// Whether lanes of this backend execute plans that `other` made.
    [[nodiscard]] virtual bool accepts(const backend &other) const = 0;
    /// Why a tensor cannot be at this address, e.g. host memory on a device; null if it can, or if
    /// nobody can tell.
    [[nodiscard]] virtual const char *refuse_memory(const void *data) const noexcept = 0;
    /// `native`: the caller's own queue, or null for one of the backend's. Throws invalid_argument
    /// for a queue that it cannot use.
    [[nodiscard]] virtual std::shared_ptr<lane> open(void *native) const = 0;
    /// "cpu avx512_bf16", for messages.
    [[nodiscard]] virtual std::string name() const = 0;

private:
    backend_facts facts_;
};

}  // namespace convgrad::engines
