#include "peaks.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>
#include <tuple>

#include <fmt/format.h>

#include "cpu/isa.hpp"
#include "graph/engine.hpp"

namespace convgrad::cli {
namespace {

using clock = std::chrono::steady_clock;

template <typename Body>
double seconds_of(Body &&body) {
    const clock::time_point start = clock::now();
    body();
    return std::chrono::duration<double>(clock::now() - start).count();
}

/// Shortest time per round of body(rounds): the number of rounds is raised until one call is long
/// enough for the clock, then the best of several calls counts, the others were disturbed.
template <typename Body>
double best_round(Body &&body) {
    constexpr double long_enough = 0.004;
    constexpr int repeats = 15;
    dim rounds = 1;
    double spent = seconds_of([&] { body(rounds); });
    while (spent < long_enough) {
        rounds *= spent * 8 < long_enough ? 8 : 2;
        spent = seconds_of([&] { body(rounds); });
    }
    double best = spent;
    for (int i = 0; i < repeats; ++i) best = std::min(best, seconds_of([&] { body(rounds); }));
    return best / static_cast<double>(rounds);
}

constexpr dim granule = 4096;

/// Read tests beyond this show memory and nothing else.
std::size_t largest_working_set() {
    return std::max<std::size_t>(std::size_t{256} << 20, 4 * cpu::cache_sizes().l3);
}

/// The next half power of two, so that similar problems share a measurement.
std::size_t bucket(double working_set, int threads) {
    const double low = 16384.0 * threads, high = static_cast<double>(largest_working_set());
    const double wanted = std::clamp(working_set, low, high);
    return static_cast<std::size_t>(std::exp2(std::round(std::log2(wanted) * 2) / 2));
}

struct candidate {
    double flops;
    std::string name;
};

}  // namespace

void machine_peaks::release::operator()(void *p) const {
    std::free(p);
}

double machine_peaks::flops(cpu::peak_unit unit, const engine &on) {
    const cpu::peak_loop *loop = cpu::find_peak(on.instruction_set(), unit);
    if (loop == nullptr) return 0;
    const auto key = std::make_tuple(unit, loop->set, on.threads());
    if (const auto known = flops_.find(key); known != flops_.end()) return known->second;
    const int workers = on.threads();
    const cpu::executor threads = on.get().threads_up_to(workers);
    const double round =
        best_round([&](dim rounds) { threads.run(workers, [&](int) { loop->run(rounds); }); });
    return flops_[key] = loop->flops * workers / round;
}

double machine_peaks::bandwidth(double working_set, const engine &on) {
    const int workers = on.threads();
    const std::size_t size = bucket(working_set, workers);
    const auto key = std::make_tuple(size, on.instruction_set(), workers);
    if (const auto known = bandwidth_.find(key); known != bandwidth_.end()) return known->second;
    if (!buffer_) {
        const std::size_t bytes = 2 * largest_working_set();
        buffer_.reset(std::aligned_alloc(granule, bytes));
        if (!buffer_) throw std::bad_alloc();
        std::memset(buffer_.get(), 0, bytes);
    }
    const dim part = std::max<dim>(granule, static_cast<dim>(size) / workers / granule * granule);
    const cpu::read_loop read = cpu::find_read(on.instruction_set());
    const cpu::executor threads = on.get().threads_up_to(workers);
    const double round = best_round([&](dim rounds) {
        threads.run(workers, [&](int worker) {
            const char *mine = static_cast<const char *>(buffer_.get()) + worker * part;
            for (dim i = 0; i < rounds; ++i) read(mine, part);
        });
    });
    return bandwidth_[key] = static_cast<double>(part) * workers / round;
}

limit machine_peaks::limit_of(const op_call &call, const engine &on) {
    const conv::problem &p = call.problem;
    const double fma = flops(cpu::peak_unit::fma, on), dot2 = flops(cpu::peak_unit::dot2, on),
                 matrix = flops(cpu::peak_unit::matrix, on);
    std::vector<candidate> candidates = {{fma, "fma"}};
    const bool fast = p.type == data_type::f32 && p.math == math_mode::fast;
    if (p.type == data_type::bf16 || fast) {
        candidates.push_back({dot2, "bf16 dot"});
        candidates.push_back({matrix, "matrix engine"});
    } else if (p.type == data_type::f16) {
        candidates.push_back({matrix / 3, "matrix engine / 3"});  // two bf16 parts, three products
    } else if (p.math == math_mode::accurate) {
        candidates.push_back({matrix / 6, "matrix engine / 6"});  // three bf16 parts, six products
    }
    const auto best = std::max_element(candidates.begin(), candidates.end(),
        [](const candidate &a, const candidate &b) { return a.flops < b.flops; });
    limit l;
    l.flops = 2 * conv::macs(p);
    l.bytes = bytes_of(call);
    l.peak_flops = best->flops;
    l.unit = best->name;
    l.peak_bandwidth = bandwidth(l.bytes, on);
    return l;
}

}  // namespace convgrad::cli
