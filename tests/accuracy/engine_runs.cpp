#include "accuracy/engine_runs.hpp"

#include <algorithm>
#include <cstring>

#include "cuda/load.hpp"
#include "engine/engine.hpp"

namespace convgrad::accuracy {

using conv::problem;
using test::role;

/// On a CPU the host's own, so that everything but the copies is the same there.
struct engine_runs::memory {
    explicit memory(const engines::backend_facts &of) : where(of) {}
    ~memory() { release(); }
    memory(const memory &) = delete;
    memory &operator=(const memory &) = delete;

    void release() noexcept {
        if (data == nullptr) return;
        if (on_host())
            ::operator delete(data, std::align_val_t(where.alignment));
        else
            cuda::tools().release(where.device, data);
        data = nullptr;
    }
    void reserve(std::size_t bytes) {
        if (data != nullptr && bytes <= held) return;
        release();
        held = std::max<std::size_t>(bytes, 1);
        data = on_host() ? ::operator new(held, std::align_val_t(where.alignment))
                         : cuda::tools().allocate(where.device, held);
    }
    void copy_in(const void *from, std::size_t bytes) const {
        if (on_host())
            std::memcpy(data, from, bytes);
        else
            cuda::tools().copy_in(where.device, data, from, bytes);
    }
    void copy_out(void *to, std::size_t bytes) const {
        if (on_host())
            std::memcpy(to, data, bytes);
        else
            cuda::tools().copy_out(where.device, to, data, bytes);
    }
    [[nodiscard]] bool on_host() const { return where.kind == engine_kind::cpu; }

    engines::backend_facts where;
    void *data = nullptr;
    std::size_t held = 0;  // bytes
};

engine_runs::engine_runs(const engine_options &where) : on_(where), queue_(on_) {
    for (std::size_t i = 0; i < 5; ++i)  // src, weights, dst, bias, workspace
        tensors_.push_back(std::make_unique<memory>(on_.get().backend->facts()));
}

engine_runs::~engine_runs() = default;

std::string engine_runs::name() const {
    return on_.get().backend->name();
}

std::vector<math_mode> modes_of(data_type type) {
    if (type == data_type::f32) return {math_mode::strict, math_mode::accurate, math_mode::fast};
    return {math_mode::strict, math_mode::accurate};
}

std::vector<engine_method> engine_runs::methods_for(const problem &p) const {
    const engines::backend &backend = *on_.get().backend;
    std::vector<engine_method> found;
    for (const math_mode math : modes_of(p.type)) {
        problem q = p;
        q.math = math;
        std::vector<engines::verdict> verdicts;
        const auto best = backend.make_plan(q, {}, &verdicts);
        std::vector<std::string> names = {std::string(best->algorithm())};
        for (const engines::verdict &v : verdicts)
            if (v.seconds > 0) names.emplace_back(v.algorithm);
        for (const std::string &algorithm : names) {
            auto plan = backend.make_plan(q, {.only_algorithm = algorithm});
            const engines::accuracy kept = plan->facts().kept;
            std::string name = algorithm + ", ";
            name += convgrad::to_string(engines::mode_of(kept));
            const bool known = std::ranges::find(found, name, &engine_method::name) != found.end();
            if (!known && engines::is_allowed(kept, math))
                found.push_back({std::move(name), std::move(plan)});
        }
    }
    return found;
}

std::unique_ptr<const engines::plan> engine_runs::chosen(const problem &p, math_mode math) const {
    problem q = p;
    q.math = math;
    return on_.get().backend->make_plan(q, {});
}

errors engine_runs::run(subject &s, const engines::plan &plan) {
    const problem &p = s.problem();
    return s.run_by([&](const conv::buffers &host) {
        conv::buffers there;
        void *const from[] = {host.src, host.weights, host.dst, host.bias};
        void **const to[] = {&there.src, &there.weights, &there.dst, &there.bias};
        const auto bytes = [&](std::size_t i) {
            const auto r = static_cast<role>(i);
            return static_cast<std::size_t>(test::span_of(p, r)) * size_of(test::type_of(p, r));
        };
        for (std::size_t i = 0; i < 4; ++i) {
            if (bytes(i) == 0) continue;  // that a pass does not have
            tensors_[i]->reserve(bytes(i));
            tensors_[i]->copy_in(from[i], bytes(i));
            *to[i] = tensors_[i]->data;
        }
        tensors_[4]->reserve(plan.workspace());
        plan.execute({&there, 1}, tensors_[4]->data, queue_.get());
        queue_.wait();
        const auto out = static_cast<std::size_t>(test::output_of(p));
        tensors_[out]->copy_out(from[out], bytes(out));
    });
}

}  // namespace convgrad::accuracy
