#include "peaks.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <numeric>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "cpu/backend.hpp"
#include "cpu/isa.hpp"
#include "data.hpp"
#include "engine/engine.hpp"
#include "options.hpp"

namespace convgrad::cli {
namespace {

using clock = std::chrono::steady_clock;

template <typename Body>
double seconds_of(Body &&body) {
    const clock::time_point start = clock::now();
    body();
    return std::chrono::duration<double>(clock::now() - start).count();
}

/// Rounds of body(rounds) that take about `wanted` seconds.
template <typename Body>
dim calibrate(double wanted, Body &&body) {
    for (dim rounds = 1;; rounds *= 2)
        if (seconds_of([&] { body(rounds); }) >= wanted / 2) return rounds;
}

/// Long enough for the clock, short enough to fall between two interruptions by other processes.
constexpr double slice = 0.001;
constexpr int slices = 60;

/// Sum over the threads of each one's best rate, in rounds per second, while all of them are busy.
/// On a machine that is shared, no moment may come in which all threads run undisturbed.
double rounds_per_second(const cpu::peak_loop &loop, const cpu::executor &threads, int workers) {
    const dim rounds = calibrate(slice, loop.run);
    std::vector<double> best(static_cast<std::size_t>(workers), std::numeric_limits<double>::max());
    std::atomic<bool> finished{false};
    threads.run(workers, [&](int worker) {
        double &mine = best[static_cast<std::size_t>(worker)];
        for (int i = 0; i < slices && (i == 0 || !finished); ++i)
            mine = std::min(mine, seconds_of([&] { loop.run(rounds); }));
        finished = true;
    });
    double sum = 0;
    for (double seconds : best) sum += static_cast<double>(rounds) / seconds;
    return sum;
}

/// Bytes per second with which one thread reads its part of a buffer over and over, while
/// `finished` is false. Timed in pieces, so that an interruption spoils few of them; the faster
/// quarter counts, not the fastest, which may have had the memory for itself.
double read_rate(cpu::read_loop read, const char *data, dim part, std::atomic<bool> &finished) {
    constexpr dim largest_piece = dim{1} << 20, least_bytes = dim{1} << 18;
    constexpr double long_enough = 0.03;
    const dim piece = std::min(part, largest_piece);
    const dim repeats = std::max<dim>(1, least_bytes / piece);
    read(data, part);
    std::vector<double> times;
    double spent = 0;
    for (dim at = 0, passes = 0; times.empty() || !finished; at += piece) {
        if (at + piece > part) {
            at = 0;
            if (++passes >= 2 && spent > long_enough) break;
        }
        times.push_back(seconds_of([&] {
            for (dim i = 0; i < repeats; ++i) read(data + at, piece);
        }));
        spent += times.back();
    }
    finished = true;
    const auto quarter = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 4);
    std::nth_element(times.begin(), quarter, times.end());
    return static_cast<double>(piece * repeats) / *quarter;
}

constexpr dim granule = 4096;

/// Read tests beyond this show memory and nothing else. Not more than a part of what is free.
std::size_t largest_working_set() {
    static const std::size_t size = [] {
        constexpr std::size_t least = std::size_t{16} << 20, usual = std::size_t{256} << 20;
        const std::size_t wanted = std::max(usual, 4 * cpu::cache_sizes().l3);
        const auto spare = static_cast<std::size_t>(available_memory() / 8);
        return std::max(least, std::min(wanted, spare));
    }();
    return size;
}

/// The next half power of two, so that similar problems share a measurement.
std::size_t bucket(double working_set, int threads) {
    const double low = 16384.0 * threads, high = static_cast<double>(largest_working_set());
    const double wanted = std::clamp(working_set, low, high);
    return static_cast<std::size_t>(std::exp2(std::round(std::log2(wanted) * 2) / 2));
}

/// Share of an axis' pairs of position and tap that lie inside src.
double share_inside(const conv::axis &a) {
    double inside = 0;
    for (dim k = 0; k < a.kernel; ++k) {
        const dim first = k * a.dilation - a.pad;  // src index at dst index 0
        const auto before = [&](dim x) {           // dst indices that meet src below index x
            return std::clamp<dim>((x - first + a.stride - 1) / a.stride, 0, a.dst);
        };
        inside +=
            static_cast<double>((first < a.src ? before(a.src) : 0) - (first < 0 ? before(0) : 0));
    }
    const auto all = static_cast<double>(a.kernel * a.dst);
    return all > 0 ? inside / all : 1;
}

struct candidate {
    double flops;
    std::string name;
};

/// What is to be done, wherever.
limit work_of(const op_call &call) {
    limit l;
    l.flops = 2 * conv::macs(call.problem);
    if (call.problem.what == conv::pass::backward_bias)  // one addition for each element
        l.flops = static_cast<double>(call.elements_of(role::dst));
    l.needed = l.flops;
    for (const conv::axis &a : call.problem.x) l.needed *= share_inside(a);
    l.bytes = bytes_of(call);
    return l;
}

}  // namespace

void machine_peaks::release::operator()(void *p) const {
    std::free(p);
}

double machine_peaks::flops(cpu::peak_unit unit, const engine &on) {
    const cpu::peak_loop *loop = cpu::find_peak(on.instruction_set(), unit);
    if (loop == nullptr) return 0;
    const auto key = std::make_tuple(unit, to_string(loop->set), on.threads());
    if (const auto known = flops_.find(key); known != flops_.end()) return known->second;
    const int workers = on.threads();
    const cpu::executor threads = cpu::backend_of(on).executor_now().limited(workers);
    return flops_[key] = loop->flops * rounds_per_second(*loop, threads, workers);
}

double machine_peaks::bandwidth(double working_set, const engine &on) {
    const int workers = on.threads();
    const std::size_t size = bucket(working_set, workers);
    const auto key = std::make_tuple(size, to_string(on.instruction_set()), workers);
    if (const auto known = bandwidth_.find(key); known != bandwidth_.end()) return known->second;
    const dim part = std::max<dim>(granule, static_cast<dim>(size) / workers / granule * granule);
    const char *data = buffer(static_cast<std::size_t>(part * workers));
    const cpu::executor threads = cpu::backend_of(on).executor_now().limited(workers);
    double best = 0;
    // Wide vectors are best in caches, but not always for memory.
    for (isa set : {isa::portable, on.instruction_set()}) {
        std::vector<double> rates(static_cast<std::size_t>(workers));
        std::atomic<bool> finished{false};
        threads.run(workers, [&](int worker) {
            rates[static_cast<std::size_t>(worker)] =
                read_rate(cpu::find_read(set), data + worker * part, part, finished);
        });
        best = std::max(best, std::accumulate(rates.begin(), rates.end(), 0.0));
    }
    return bandwidth_[key] = best;
}

const char *machine_peaks::buffer(std::size_t bytes) {
    if (bytes > buffer_bytes_) {
        buffer_.reset();  // before asking for more: both together might not fit
        buffer_bytes_ = 0;
        buffer_.reset(std::aligned_alloc(granule, bytes));
        if (!buffer_) throw std::bad_alloc();
        std::memset(buffer_.get(), 0, bytes);
        buffer_bytes_ = bytes;
    }
    return static_cast<const char *>(buffer_.get());
}

const cuda::device_peaks &machine_peaks::of_device(const engine &on) {
    const int device = on.get().backend->facts().device;
    const auto known = devices_.find(device);
    if (known != devices_.end()) return known->second;
    return devices_[device] = cuda::tools().peaks(device);
}

limit machine_peaks::device_limit(const op_call &call, const engine &on) {
    const conv::problem &p = call.problem;
    const cuda::device_peaks &peaks = of_device(on);
    const bool depthwise = p.groups > 1 && std::min(p.ic, p.oc) == 1;
    candidate best = {peaks.fma, "fma"};
    if (!depthwise && p.math != math_mode::strict) {  // which keeps to multiply-adds
        // TF32 has half the rate of 16-bit types; `accurate` takes three products of it, `fast`
        // one.
        const int share = p.type != data_type::f32 ? 1 : p.math == math_mode::fast ? 2 : 6;
        if (peaks.tensor / share > peaks.fma)
            best = {peaks.tensor / share,
                share == 1 ? "tensor cores" : fmt::format("tensor cores / {}", share)};
    }
    constexpr double cached = 16e6;
    limit l = work_of(call);
    l.peak_flops = best.flops;
    l.unit = best.name;
    l.peak_bandwidth = l.bytes < cached ? peaks.l2 : peaks.memory;
    return l;
}

std::string machine_peaks::describe(const engine &on) {
    if (on.kind() == engine_kind::cuda) {
        const cuda::device_peaks &p = of_device(on);
        return fmt::format(
            "{}: fma {:.0f} GFLOP/s, tensor cores {:.0f}; memory {:.0f} GB/s, L2 {:.0f}",
            on.get().backend->name(), p.fma * 1e-9, p.tensor * 1e-9, p.memory * 1e-9, p.l2 * 1e-9);
    }
    std::string text = fmt::format("{}, {} threads: fma {:.0f} GFLOP/s",
        to_string(on.instruction_set()), on.threads(), flops(cpu::peak_unit::fma, on) * 1e-9);
    if (const double v = flops(cpu::peak_unit::dot2, on); v > 0)
        text += fmt::format(", bf16 dot {:.0f}", v * 1e-9);
    if (const double v = flops(cpu::peak_unit::matrix, on); v > 0)
        text += fmt::format(", matrix engine {:.0f}", v * 1e-9);
    text += fmt::format("; memory {:.1f} GB/s", bandwidth(1e12, on) * 1e-9);
    for (const auto &[key, rate] : bandwidth_) {
        const auto &[size, set, workers] = key;
        if (set != to_string(on.instruction_set()) || workers != on.threads()
            || size >= bucket(1e12, workers))
            continue;
        text += fmt::format(", {} {:.0f}", bytes_text(static_cast<double>(size)), rate * 1e-9);
    }
    return text;
}

limit machine_peaks::limit_of(const op_call &call, const engine &on) {
    if (on.kind() == engine_kind::cuda) return device_limit(call, on);
    const conv::problem &p = call.problem;
    const double fma = flops(cpu::peak_unit::fma, on), dot2 = flops(cpu::peak_unit::dot2, on),
                 matrix = flops(cpu::peak_unit::matrix, on);
    std::vector<candidate> candidates = {{fma, "fma"}};
    const bool fast = p.type == data_type::f32 && p.math == math_mode::fast;
    // The others multiply channels by channels: with one of them per group most of such a unit is
    // idle.
    const bool depthwise = p.groups > 1 && std::min(p.ic, p.oc) == 1;
    if (!depthwise && (p.type == data_type::bf16 || fast)) {
        candidates.push_back({dot2, "bf16 dot"});
        candidates.push_back({matrix, "matrix engine"});
    } else if (!depthwise && p.type == data_type::f16) {
        candidates.push_back({matrix / 3, "matrix engine / 3"});  // two bf16 parts, three products
    } else if (!depthwise && p.math == math_mode::accurate) {
        candidates.push_back({matrix / 6, "matrix engine / 6"});  // three bf16 parts, six products
    }
    const auto best = std::max_element(candidates.begin(), candidates.end(),
        [](const candidate &a, const candidate &b) { return a.flops < b.flops; });
    limit l = work_of(call);
    l.peak_flops = best->flops;
    l.unit = best->name;
    l.peak_bandwidth = bandwidth(l.bytes, on);
    return l;
}

}  // namespace convgrad::cli
