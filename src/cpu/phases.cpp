#include "cpu/phases.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpu/element.hpp"
#include "cpu/kernels/kernels.hpp"
#include "cpu/tasks.hpp"
#include "cpu/work_cut.hpp"

namespace convgrad::cpu {

phase_list list_phases(const axis_walk (&walk)[3], const axis_patch (&patch)[3],
    const conv::weights_strides &weights, const conv::data_strides &in) {
    phase_list list;
    for (std::size_t d = 0; d < walk[0].phases.size(); ++d)
        for (std::size_t h = 0; h < walk[1].phases.size(); ++h)
            for (std::size_t w = 0; w < walk[2].phases.size(); ++w) {
                conv_phase f{{&walk[0].phases[d], &walk[1].phases[h], &walk[2].phases[w]},
                    static_cast<dim>(list.weights.size()), 0};
                for (std::size_t kd = 0; kd < f.axis[0]->taps.size(); ++kd)
                    for (std::size_t kh = 0; kh < f.axis[1]->taps.size(); ++kh)
                        for (std::size_t kw = 0; kw < f.axis[2]->taps.size(); ++kw) {
                            const axis_tap &td = f.axis[0]->taps[kd], &th = f.axis[1]->taps[kh],
                                           &tw = f.axis[2]->taps[kw];
                            list.weights.push_back(
                                td.k * weights.k[0] + th.k * weights.k[1] + tw.k * weights.k[2]);
                            list.patch.push_back(patch_index(patch, patch[0].start[d][kd],
                                patch[1].start[h][kh], patch[2].start[w][kw]));
                            list.input.push_back(
                                td.off * in.x[0] + th.off * in.x[1] + tw.off * in.x[2]);
                        }
                f.taps = static_cast<dim>(list.weights.size()) - f.first_tap;
                list.phases.push_back(f);
            }
    return list;
}

bool taps_side_by_side(const conv::problem &p) {
    dim pitch = 1;
    for (std::size_t a = 3; a-- > 0;) {
        if (p.x[a].kernel > 1 && p.weights.k[a] != pitch) return false;
        pitch *= p.x[a].kernel;
    }
    return pitch > 1 && std::min(p.weights.i, p.weights.o) == pitch;
}

dim count_phases(const axis_walk (&walk)[3]) {
    return static_cast<dim>(walk[0].phases.size() * walk[1].phases.size() * walk[2].phases.size());
}

dim count_taps(const axis_walk (&walk)[3]) {
    dim all = 1;
    for (const axis_walk &w : walk) {
        dim taps = 0;
        for (const axis_phase &f : w.phases) taps += static_cast<dim>(f.taps.size());
        all *= taps;
    }
    return all;
}

dim count_positions(const axis_walk (&walk)[3]) {
    return walk[0].longest * walk[1].longest * walk[2].longest;
}

data_roles::data_roles(const conv::problem &p)
    : forward(p.what == conv::pass::forward), in_c(forward ? p.ic : p.oc),
      out_c(forward ? p.oc : p.ic), in(forward ? p.src : p.dst), out(forward ? p.dst : p.src),
      weights_in(forward ? p.weights.i : p.weights.o),
      weights_out(forward ? p.weights.o : p.weights.i) {}

bool needs_care(const conv::problem &p, const data_roles &roles, const axis_walk (&walk)[3],
    const conv_phase &f, const conv::buffers &data, dim group, dim channel, const dim (&t)[3]) {
    const dim w_base = group * p.weights.g + channel * roles.weights_out;
    for (const axis_tap &kd : f.axis[0]->taps)
        for (const axis_tap &kh : f.axis[1]->taps)
            for (const axis_tap &kw : f.axis[2]->taps) {
                const axis_tap *tap[3] = {&kd, &kh, &kw};
                dim w = w_base;
                bool inside = true;
                for (std::size_t a = 0; a < 3; ++a) {
                    const dim x = t[a] * walk[a].in_step + tap[a]->off;
                    inside = inside && x >= 0 && x < walk[a].in_length;
                    w += tap[a]->k * p.weights.k[a];
                }
                for (dim i = 0; !inside && i < roles.in_c; ++i)
                    if (!std::isfinite(load_float(data.weights, p.type, w + i * roles.weights_in)))
                        return true;
            }
    return false;
}

float careful_sum(const conv::problem &p, const data_roles &roles, const axis_walk (&walk)[3],
    const conv_phase &f, const conv::buffers &data, dim n, dim group, dim channel,
    const dim (&t)[3]) {
    const dim in_base = n * roles.in.n + group * roles.in_c * roles.in.c;
    const dim w_base = group * p.weights.g + channel * roles.weights_out;
    float sum = 0;
    for (const axis_tap &kd : f.axis[0]->taps)
        for (const axis_tap &kh : f.axis[1]->taps)
            for (const axis_tap &kw : f.axis[2]->taps) {
                const axis_tap *tap[3] = {&kd, &kh, &kw};
                dim in = in_base, w = w_base;
                bool inside = true;
                for (std::size_t a = 0; a < 3; ++a) {
                    const dim x = t[a] * walk[a].in_step + tap[a]->off;
                    inside = inside && x >= 0 && x < walk[a].in_length;
                    in += x * roles.in.x[a];
                    w += tap[a]->k * p.weights.k[a];
                }
                for (dim i = 0; inside && i < roles.in_c; ++i)
                    sum += load_float(roles.input(data), p.type, in + i * roles.in.c)
                           * load_float(data.weights, p.type, w + i * roles.weights_in);
            }
    return sum;
}

gradient_taps::gradient_taps(const conv::problem &p, const axis_walk (&walk)[3]) {
    std::vector<bool> meets[3];
    for (std::size_t a = 0; a < 3; ++a) {
        meets[a].resize(static_cast<std::size_t>(p.x[a].kernel));
        if (p.mb == 0 || walk[a].phases.empty()) continue;
        for (const axis_tap &t : walk[a].phases[0].taps)
            meets[a][static_cast<std::size_t>(t.k)] = true;
    }
    for (std::size_t kd = 0; kd < meets[0].size(); ++kd)
        for (std::size_t kh = 0; kh < meets[1].size(); ++kh)
            for (std::size_t kw = 0; kw < meets[2].size(); ++kw)
                (meets[0][kd] && meets[1][kh] && meets[2][kw] ? kept : empty)
                    .push_back(static_cast<dim>(kd) * p.weights.k[0]
                               + static_cast<dim>(kh) * p.weights.k[1]
                               + static_cast<dim>(kw) * p.weights.k[2]);
}

void gradient_taps::write_zeros(const conv::problem &p, const conv::buffers &data) const {
    if (p.accumulate || empty.empty()) return;
    const dim size = static_cast<dim>(size_of(p.out_type));
    const bool inputs_inside = p.weights.i < p.weights.o;
    const dim outer = inputs_inside ? p.oc : p.ic, inner = inputs_inside ? p.ic : p.oc;
    if (outer == 0 || inner == 0) return;  // an empty tensor may be null
    const dim outer_step = size * (inputs_inside ? p.weights.o : p.weights.i),
              step = size * (inputs_inside ? p.weights.i : p.weights.o);
    const dim taps = p.x[0].kernel * p.x[1].kernel * p.x[2].kernel;
    if (taps_side_by_side(p)
        && step == size * taps) {  // whole filters: the others are written later
        for (dim g = 0; g < p.groups; ++g)
            for (dim c = 0; c < outer; ++c)
                std::memset(
                    static_cast<char *>(data.weights) + size * g * p.weights.g + c * outer_step, 0,
                    static_cast<std::size_t>(inner * step));
        return;
    }
    for (dim g = 0; g < p.groups; ++g)
        for (dim offset : empty) {
            char *at = static_cast<char *>(data.weights) + size * (g * p.weights.g + offset);
            for (dim c = 0; c < outer; ++c, at += outer_step) {
                // Zero is no bits in every type.
                if (step == size) std::memset(at, 0, static_cast<std::size_t>(inner * size));
                for (dim i = 0; step != size && i < inner; ++i)
                    std::memset(at + i * step, 0, static_cast<std::size_t>(size));
            }
        }
}

float careful_sum(const conv::problem &p, const axis_walk (&walk)[3],
    const axis_tap *const (&taps)[3], const conv::buffers &data, dim n, dim group, dim i, dim o,
    const dim (&t0)[3], const dim (&length)[3]) {
    const dim src_base = n * p.src.n + (group * p.ic + i) * p.src.c;
    const dim dst_base = n * p.dst.n + (group * p.oc + o) * p.dst.c;
    float sum = 0;
    dim y[3];
    for (y[0] = 0; y[0] < length[0]; ++y[0])
        for (y[1] = 0; y[1] < length[1]; ++y[1])
            for (y[2] = 0; y[2] < length[2]; ++y[2]) {
                dim src_at = src_base, dst_at = dst_base;
                bool inside = true;
                for (std::size_t a = 0; a < 3; ++a) {
                    const dim position = t0[a] + y[a];
                    const dim x = position * walk[a].in_step + taps[a]->off;
                    inside = inside && x >= 0 && x < walk[a].in_length;
                    src_at += x * p.src.x[a];
                    dst_at += position * p.dst.x[a];
                }
                if (inside)
                    sum +=
                        load_float(data.src, p.type, src_at) * load_float(data.dst, p.type, dst_at);
            }
    return sum;
}

namespace {

dim reached(const axis_walk &w) {
    dim count = 0;
    for (const axis_phase &f : w.phases) count += f.count;
    return count;
}

/// Rows of output positions that fill_unreached() visits.
dim rows_to_fill(const conv::problem &p, const data_roles &roles, const axis_walk (&walk)[3],
    bool nothing_to_sum) {
    bool some = nothing_to_sum;
    for (const axis_walk &w : walk) some = some || reached(w) < w.out_length;
    return some && roles.out_c * p.groups > 0 ? p.mb * walk[0].out_length * walk[1].out_length : 0;
}

bool none_reached(const axis_walk (&walk)[3], bool nothing_to_sum) {
    for (const axis_walk &w : walk) nothing_to_sum = nothing_to_sum || reached(w) == 0;
    return nothing_to_sum;
}

}  // namespace

work_stage unreached_stage(const conv::problem &p, const data_roles &roles,
    const axis_walk (&walk)[3], bool nothing_to_sum, int workers) {
    const bool all = none_reached(walk, nothing_to_sum);
    const double bytes = static_cast<double>(
        roles.out_c * p.groups * static_cast<dim>(size_of(p.type)) * (p.accumulate ? 2 : 1));
    return {"unreached outputs", rows_to_fill(p, roles, walk, nothing_to_sum), workers,
        [&walk, bytes, all](dim index, dim) {
            const dim h = index % walk[1].out_length;
            const dim d = index / walk[1].out_length % walk[0].out_length;
            const bool row = all || !is_reached(walk[0], d) || !is_reached(walk[1], h);
            const dim count = walk[2].out_length - (row ? 0 : reached(walk[2]));
            return task_cost{0, 0, bytes * static_cast<double>(count)};
        }};
}

void fill_unreached(const conv::problem &p, const data_roles &roles, const axis_walk (&walk)[3],
    const kernel_set &kernels, bool nothing_to_sum, const conv::buffers &data,
    const executor &threads) {
    const dim rows = rows_to_fill(p, roles, walk, nothing_to_sum);
    if (rows == 0) return;
    const bool all = none_reached(walk, nothing_to_sum);
    const dim out_all = roles.out_c * p.groups;
    // Few channels take no memory: tasks of other drivers, which must not fail, come here too.
    constexpr dim few = 64;
    const dim padded = round_up_to(out_all, few);
    float some[2 * few] = {};
    std::vector<float> many(padded > few ? 2 * static_cast<std::size_t>(padded) : 0);
    const float *zeros = padded > few ? many.data() : some;
    float *bias = (padded > few ? many.data() : some) + padded;
    for (dim c = 0; p.bias && c < out_all; ++c)
        bias[c] = load_float(data.bias, p.type, c * p.bias_stride);
    const dim size = static_cast<dim>(size_of(p.type));
    char *out = static_cast<char *>(roles.output(data));
    for_each_task(threads, rows, [&](int, dim index) {
        const dim h = index % walk[1].out_length,
                  d = index / walk[1].out_length % walk[0].out_length;
        const dim n = index / walk[1].out_length / walk[0].out_length;
        const bool row = all || !is_reached(walk[0], d) || !is_reached(walk[1], h);
        const auto at = [&](const conv::data_strides &s, dim w) {
            return size * (n * s.n + d * s.x[0] + h * s.x[1] + w * s.x[2]);
        };
        const dim step = row ? 1 : walk[2].out_step;
        for (dim w = 0; w < std::min(step, walk[2].out_length); ++w) {
            if (!row && is_reached(walk[2], w)) continue;
            store_args args{zeros, 1, 0, out_all, div_up(walk[2].out_length - w, step),
                out + at(roles.out, w), p.type, roles.out.c, roles.out.x[2] * step,
                p.bias ? bias : nullptr,
                p.add ? static_cast<const char *>(data.add) + at(p.add_strides, w) : nullptr,
                p.add_strides.c, p.add_strides.x[2] * step, p.accumulate, p.relu};
            kernels.store(args);
        }
    });
}

}  // namespace convgrad::cpu
