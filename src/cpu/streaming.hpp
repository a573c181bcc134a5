// Results that go past the caches.
//
// A store brings its line into the cache first. Where a pass reads and writes more than the last
// cache holds, little of its result would still be there for the next reader, so that this only
// moves each line once more and pushes out what is still needed. Kernels then write whole lines
// straight to memory (`stream` in their arguments). Such stores are not ordered with others:
// run_tasks() ends a worker's share with settle_stores().
#pragma once

#include <atomic>
#include <cstdint>

#include "conv/problem.hpp"
#include "cpu/isa.hpp"
#include "cpu/kernels/kernels.hpp"

namespace convgrad::cpu {

inline constexpr dim line_bytes = 64;

inline bool on_lines(const void *p, dim pitch, dim width) {
    return reinterpret_cast<std::uintptr_t>(p) % line_bytes == 0 && pitch % line_bytes == 0
           && width % line_bytes == 0;
}

/// Bytes that a pass may read and write before its results go past the caches (or, at half of it,
/// memory is asked for ahead: box_lines.hpp). Tests set it: what they compute would fit.
inline std::atomic<std::size_t> &stream_above() {
    static std::atomic<std::size_t> bytes = cache_sizes().l3;
    return bytes;
}

/// Whether a pass that reads and writes so many bytes leaves nothing of its result in the last
/// cache: together they are more than that, and the result alone is more than half of it.
inline bool exceeds_caches(double read, double written) {
    const auto most = static_cast<double>(stream_above().load(std::memory_order_relaxed));
    return read + written > most && 2 * written > most;
}

/// Of the whole tensors.
struct tensor_bytes {
    double src, dst;
};

inline tensor_bytes bytes_of_data(const conv::problem &p) {
    double src = static_cast<double>(p.ic), dst = static_cast<double>(p.oc);
    for (const conv::axis &a : p.x) {
        src *= static_cast<double>(a.src);
        dst *= static_cast<double>(a.dst);
    }
    const double each = static_cast<double>(p.mb * p.groups) * static_cast<double>(size_of(p.type));
    return {each * src, each * dst};
}

/// The same for a data pass; what is accumulated was read, and is there.
inline bool exceeds_caches(const conv::problem &p) {
    if (p.accumulate) return false;
    const tensor_bytes bytes = bytes_of_data(p);
    const bool forward = p.what == conv::pass::forward;
    return exceeds_caches(forward ? bytes.src : bytes.dst, forward ? bytes.dst : bytes.src);
}

/// Whether what kernels_.store() writes are whole lines, but for ends of long rows.
inline bool stores_lines(const store_args &a) {
    const dim size = static_cast<dim>(size_of(a.type));
    if (a.cs == 1) return on_lines(a.out, size * a.xs, size * a.channels);
    return a.xs == 1 && on_lines(a.out, size * a.cs, 0) && size * a.count >= 4 * line_bytes;
}

}  // namespace convgrad::cpu
