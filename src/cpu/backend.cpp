#include "cpu/backend.hpp"

#include <algorithm>

#include <convgrad/error.hpp>

#include "cpu/isa.hpp"
#include "cpu/scratch.hpp"
#include "engine/engine.hpp"

namespace convgrad {

thread_pool::~thread_pool() = default;

inline namespace CONVGRAD_ABI {
isa detected_isa() noexcept {
    return cpu::name_of(cpu::detected());
}
}  // namespace CONVGRAD_ABI

namespace cpu {
namespace {

[[noreturn]] void refuse(const std::string &message) {
    throw error(error_code::invalid_argument, "engine: " + message);
}

engines::backend_facts facts_of(const engine_options &options) {
    if (options.device != 0)
        refuse("device is " + std::to_string(options.device) + "; a CPU engine has device 0 only");
    if (options.max_isa != isa::best
        && std::find(std::begin(all_isas), std::end(all_isas), options.max_isa)
               == std::end(all_isas))
        refuse("max_isa has the value " + std::to_string(static_cast<int>(options.max_isa))
               + ", which is no instruction set");
    return {.kind = engine_kind::cpu,
        .device = 0,
        .set = name_of(allowed() & options.max_isa),
        .alignment = scratch_alignment};
}

}  // namespace

executor threads_of(engines::lane &on) {
    return static_cast<lane &>(on).threads();
}

void plan::execute(std::span<const conv::buffers> data, void *workspace, engines::lane &on) const {
    run(data[0], workspace, threads_of(on));
}

std::shared_ptr<const void> plan::prepare(
    const conv::buffers &data, void *workspace, engines::lane &on) const {
    return prepare_weights(data, workspace, threads_of(on));
}

void *lane::take(std::size_t bytes) {
    return take_scratch(bytes);
}

void lane::give_back(void *scratch, std::size_t) noexcept {
    give_scratch_back(scratch);
}

backend::backend(const engine_options &options)
    : engines::backend(facts_of(options)), may_use_(allowed() & options.max_isa), threads_(options),
      lane_(threads_) {}

std::unique_ptr<const engines::plan> backend::make_plan(const conv::problem &p,
    const engines::plan_limits &asked, std::vector<engines::verdict> *verdicts) const {
    return cpu::make_plan(p, limits(asked), verdicts);
}

std::unique_ptr<const engines::plan> backend::join(const engines::plan &data,
    const engines::plan &weights, const engines::plan_limits &limits) const {
    return join_plans(
        static_cast<const plan &>(data), static_cast<const plan &>(weights), limits.workspace);
}

bool backend::accepts(const engines::backend &other) const {
    // Threads and pools never matter: a plan uses as many as it was made for, at most.
    return other.facts().kind == engine_kind::cpu
           && may_use_.include(static_cast<const backend &>(other).may_use_);
}

std::shared_ptr<engines::lane> backend::open(void *native) const {
    if (native != nullptr)
        throw error(
            error_code::invalid_argument, "stream: a native queue is given; a CPU engine has none");
    return {shared_from_this(), &lane_};
}

std::string backend::name() const {
    return "cpu " + std::string(to_string(facts().set));
}

std::shared_ptr<const engines::backend> make_backend(const engine_options &options) {
    return std::make_shared<backend>(options);
}

const backend &backend_of(const engine &on) {
    return static_cast<const backend &>(*on.get().backend);
}

}  // namespace cpu
}  // namespace convgrad
