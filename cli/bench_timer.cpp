// Times executions of one case.
#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include <convgrad/error.hpp>

#include "bench.hpp"
#include "cpu/machine/machine.hpp"
#include "runner.hpp"

namespace convgrad::cli {
namespace {

using clock = std::chrono::steady_clock;

double since(clock::time_point start) {
    return std::chrono::duration<double>(clock::now() - start).count();
}

/// Drops a tensor from all caches.
void evict(const void *data, double bytes) {
    const auto *at = static_cast<const char *>(data);
    for (dim i = 0; i < static_cast<dim>(bytes); i += 64) cpu::evict_line(at + i);
}

void evict_tensors(const op_call &call, const conv::buffers &data) {
    const void *const slots[] = {data.src, data.weights, data.dst, data.bias};
    const auto size = static_cast<double>(size_of(call.problem.type));
    for (role which : {role::src, role::weights, role::dst, role::bias})
        evict(slots[static_cast<std::size_t>(which)],
            static_cast<double>(call.elements_of(which)) * size);
}

}  // namespace

bench_result case_timer::measure(const op_case &c, double seconds, bool cold) {
    const engine &on = engines_.get(c.on);
    if (cold && on.kind() != engine_kind::cpu)
        throw error(error_code::unsupported, "--cold is for the CPU");
    const op_call call = make_call(c, false);
    const double needed = bytes_of(call);
    if (needed > 0.85 * (available_memory() + store_.held()))
        throw error(error_code::out_of_memory, fmt::format("needs {}", bytes_text(needed)));
    const conv::buffers data = fill_tensors(call, store_, {filling::kind::reals, 1, 1});
    const runner ready(call, data, on);
    const auto plan = any_plan_of(call, on);
    bench_result r;
    r.what = c;
    r.algorithm = plan->algorithm();
    r.uses = plan->facts().uses;
    r.threads = on.kind() == engine_kind::cpu ? on.threads() : 0;
    r.bound = peaks_.limit_of(call, on);

    constexpr std::size_t least = 3, most = 10000;
    ready.execute();  // warm-up: pages, caches, clock frequency, threads
    const clock::time_point begin = clock::now();
    std::vector<double> times;
    while (times.size() < least || (since(begin) < seconds && times.size() < most)) {
        if (cold) evict_tensors(call, data);
        times.push_back(ready.seconds());
    }
    std::sort(times.begin(), times.end());
    r.min_seconds = times.front();
    r.median_seconds = times[times.size() / 2];
    return r;
}

}  // namespace convgrad::cli
