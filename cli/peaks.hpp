// The machine's limits, measured when they are first needed and remembered for the run.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include <convgrad/engine.hpp>

#include "cuda/load.hpp"
#include "op_case.hpp"
#include "tools/peak.hpp"

namespace convgrad::cli {

/// What bounds one execution of a problem from below.
struct limit {
    double flops = 0, bytes = 0;  // work: two per multiply-add; every tensor touched once
    double needed = 0;            // flops without taps that lie in the padding
    double peak_flops = 0;        // per second, of the unit that serves the type best
    double peak_bandwidth = 0;    // bytes per second, at this working set
    std::string unit;             // e.g. "fma", "matrix engine / 6"
    [[nodiscard]] double compute_seconds() const { return needed / peak_flops; }
    [[nodiscard]] double memory_seconds() const { return bytes / peak_bandwidth; }
    [[nodiscard]] bool compute_bound() const { return compute_seconds() >= memory_seconds(); }
    [[nodiscard]] double seconds() const {
        return compute_bound() ? compute_seconds() : memory_seconds();
    }
};

class machine_peaks {
public:
    /// The roofline of a problem on an engine.
    limit limit_of(const op_call &call, const engine &on);
    /// FLOP/s of a unit on all threads of an engine; 0 if its instruction set lacks the unit.
    double flops(cpu::peak_unit unit, const engine &on);
    /// Bytes per second that all threads together read, each its part of `working_set` bytes, over
    /// and over: caches where they hold it, memory where they do not.
    double bandwidth(double working_set, const engine &on);
    /// What the device of a CUDA engine reaches.
    const cuda::device_peaks &of_device(const engine &on);
    /// One line: what an engine's threads reach, with the bandwidths that were asked for.
    std::string describe(const engine &on);

private:
    struct release {
        void operator()(void *p) const;
    };
    std::map<std::tuple<cpu::peak_unit, std::string_view, int>, double> flops_;
    std::map<std::tuple<std::size_t, std::string_view, int>, double> bandwidth_;
    std::map<int, cuda::device_peaks> devices_;
    [[nodiscard]] limit device_limit(const op_call &call, const engine &on);
    const char *buffer(std::size_t bytes);

    std::unique_ptr<void, release> buffer_;
    std::size_t buffer_bytes_ = 0;
};

}  // namespace convgrad::cli
