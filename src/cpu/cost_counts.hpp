// What the counts of the cost model are made of.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/cost_model.hpp"
#include "cpu/streaming.hpp"

namespace convgrad::cpu {

/// Of what is not negative. The library's function is a call, which takes as long as the rest.
inline double floor_of(double v) {
    constexpr double most = 0x1p52;  // beyond, all are whole
    return v < most ? static_cast<double>(static_cast<std::int64_t>(v)) : v;
}
inline double parts_of(double all, double part) {
    const double ratio = all / part, low = floor_of(ratio);
    return low < ratio ? low + 1 : low;
}
inline bool divides(double part, double all) {
    return floor_of(all / part) * part == all;
}
inline double whole(double all, double part) {
    return parts_of(all, part) * part;
}

/// Lines of memory for each position, if positions are so many bytes apart. (Patches of one channel
/// have eight positions in a line; a line for each was half of what tiles were predicted to take.)
inline double lines_of(double bytes) {
    return std::min(1.0, bytes / number(line_bytes));
}

/// How elements come to a kernel: `maps` maps of `positions` positions of `channels` channels.
struct reading {
    bool last, as_stored;
    double stride;  // between elements that are packed side by side
    double channels, positions;
    double pitch = line_bytes;  // bytes from position to position, where they are as stored
};

inline void add(work_counts &w, double maps, const reading &r) {
    double &how = r.as_stored     ? w.direct
                  : r.last        ? w.copied
                  : r.stride > 2  ? w.far
                  : r.stride == 2 ? w.gathered
                                  : w.turned;
    how += maps * r.channels * r.positions;
    if (r.last) w.lines += maps * r.positions * (r.as_stored ? lines_of(r.pitch) : 1);
}

inline void add_results(work_counts &w, const problem_sizes &s, bool straight) {
    const double all = s.maps * s.out_c * s.out_positions;
    if (s.out_last) w.result_lines = s.maps * s.out_positions;
    if (!s.out_last) w.results_apart = all;
    if (s.out_last && !straight) w.results_last = all;
}

/// Source and destination of a weights gradient.
inline void add_both(work_counts &w, const problem_sizes &s, double maps, double ic, double oc,
    bool src_as_stored, bool dst_as_stored, double stride) {
    add(w, maps, {s.in_last, src_as_stored, stride, ic, s.in_positions, s.size * s.in_pitch});
    add(w, maps,
        {s.out_last, dst_as_stored, 1, oc, s.dst_positions, s.size * number(s.p.dst.x[2])});
}

}  // namespace convgrad::cpu
