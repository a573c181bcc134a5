#include "cpu/depthwise_taps.hpp"

#include <algorithm>
#include <numeric>

#include "conv/convert.hpp"
#include "cpu/streaming.hpp"

namespace convgrad::cpu {
namespace {

constexpr dim widest_spread = 64;
constexpr dim shortest_class = 4;  // positions; shorter ones are not worth their own walk

/// Positions apart at which the taps of neighbouring positions meet.
dim choose_spread(const axis_walk &walk, const std::vector<axis_tap> &taps, dim count) {
    if (taps.size() < 2) return 1;
    dim apart = taps[1].off - taps[0].off;
    for (std::size_t i = 2; i < taps.size(); ++i)
        apart = std::min(apart, taps[i].off - taps[i - 1].off);
    const dim spread = apart / std::gcd(apart, walk.in_step);
    return spread <= widest_spread && count / spread >= shortest_class ? spread : 1;
}

template <typename T>
void load_values(float *to, dim lanes, const T *from, dim stride, dim count, bool by_halves) {
    const dim step = by_halves ? 2 : 1;
    for (dim half = 0; half < step; ++half) {
        const dim each = (count - half + step - 1) / step, apart = step * stride;
        const T *in = from + half * stride;
        float *out = to + half * lanes;
        if (apart == 1)
            for (dim i = 0; i < each; ++i) out[i] = conv::to_float(in[i]);
        else
            for (dim i = 0; i < each; ++i) out[i] = conv::to_float(in[i * apart]);
    }
}

}  // namespace

chained_phase chain_taps(const axis_walk &walk, const axis_phase &phase, dim in_stride, dim pitch) {
    std::vector<axis_tap> taps = phase.taps;
    std::sort(taps.begin(), taps.end(),
        [](const axis_tap &l, const axis_tap &r) { return l.off < r.off; });
    chained_phase out;
    out.count = phase.count;
    out.first = phase.first;
    out.spread = choose_spread(walk, taps, phase.count);
    out.slot = out.spread * walk.in_step;
    const auto residue = [&](dim off) { return off - div_down(off, out.slot) * out.slot; };
    std::stable_sort(taps.begin(), taps.end(),
        [&](const axis_tap &l, const axis_tap &r) { return residue(l.off) < residue(r.off); });
    struct chain {
        dim off, first, taps;
    };
    std::vector<chain> chains;
    for (std::size_t i = 0; i < taps.size();) {
        std::size_t end = i + 1;
        while (end < taps.size() && taps[end].off - taps[end - 1].off == out.slot) ++end;
        const dim length = static_cast<dim>(end - i), pieces = div_up(length, longest_chain);
        for (dim piece = 0; piece < pieces; ++piece) {
            const dim a = length * piece / pieces, b = length * (piece + 1) / pieces;
            chains.push_back({taps[i].off + a * out.slot, static_cast<dim>(i) + a, b - a});
        }
        i = end;
    }
    for (const axis_tap &tap : taps) out.k.push_back(tap.k);
    out.chains = static_cast<dim>(chains.size());
    for (dim c = 0; c < out.spread; ++c)
        for (const chain &one : chains) {
            const dim at = c * walk.in_step + one.off;
            out.parts.push_back({at * in_stride, one.first * pitch, static_cast<int>(one.taps),
                -div_down(at, out.slot), -div_down(at - walk.in_length, out.slot)});
        }
    return out;
}

void line_list::at_outer(const axis_walk &walk, dim t, dim &first, dim &last) const {
    const auto inside = [&](const axis_tap &tap) {
        const dim x = t * walk.in_step + tap.off;
        return x >= 0 && x < walk.in_length;
    };
    const auto &all = outer->taps;
    const auto begin = std::find_if(all.begin(), all.end(), inside);
    const auto end = std::find_if_not(begin, all.end(), inside);
    const auto each = static_cast<dim>(inner->taps.size());
    first = (begin - all.begin()) * each;
    last = (end - all.begin()) * each;
}

merged_columns merge_columns(const axis_walk &walk, const chained_phase &chained, dim in, dim out,
    dim channels, dim pair, dim size) {
    merged_columns merged;
    if (fewest_merged * channels > pair || in != channels || out != channels
        || walk.phases.size() != 1 || walk.in_step != 1 || walk.out_step != 1)
        return merged;
    constexpr dim far = dim{1} << 40;
    merged.each = pair / channels;
    merged.end = walk.phases[0].count;
    for (const axis_tap &tap : walk.phases[0].taps) {
        merged.begin = std::max(merged.begin, -tap.off);
        merged.end = std::min(merged.end, walk.in_length - tap.off);
    }
    for (dim i = 0; i < chained.chains; ++i)
        for (int k = 0; k < chained.parts[static_cast<std::size_t>(i)].taps; ++k) {
            tap_chain one = chained.parts[static_cast<std::size_t>(i)];
            one.in += k * size * chained.slot * in;
            one.weights += k * pair;
            merged.chains.push_back({one.in, one.weights, 1, -far, far});
        }
    return merged;
}

void repeat_pair(float *pair, float *ordered, dim length, data_type type, dim channels, dim times) {
    const auto lanes = static_cast<int>(length / 2);
    for (dim i = channels; i < times * channels; ++i) pair[i] = pair[i % channels];
    for (dim i = 0; i < length; ++i) ordered[depthwise_slot(type, lanes, i)] = pair[i];
}

dim line_list::furthest(dim outer_stride, dim inner_stride) const {
    const auto most = [](const axis_phase &phase) {
        dim off = phase.taps[0].off;
        for (const axis_tap &tap : phase.taps) off = std::max(off, tap.off);
        return off;
    };
    return most(*outer) * outer_stride + (most(*inner) + 1) * inner_stride;
}

bool worth_fetching_ahead(const conv::problem &p) {
    constexpr dim most_taps = 27, in_order = 128;
    const dim taps = p.x[0].kernel * p.x[1].kernel * p.x[2].kernel;
    const dim position = static_cast<dim>(size_of(p.type)) * p.groups;
    const tensor_bytes bytes = bytes_of_data(p);
    const auto most = static_cast<double>(stream_above().load(std::memory_order_relaxed));
    return taps <= most_taps && position > in_order && bytes.src + bytes.dst > most / 2;
}

line_list make_lines(const axis_phase &outer, dim outer_stride, const axis_walk &inner_walk,
    const axis_phase &inner, dim inner_stride, dim pitch) {
    line_list list{&outer, &inner, {}, {}};
    for (const axis_tap &o : outer.taps)
        for (const axis_tap &i : inner.taps) {
            list.lines.push_back({o.off * outer_stride + i.off * inner_stride,
                static_cast<dim>(list.lines.size()) * pitch, -div_down(i.off, inner_walk.in_step),
                -div_down(i.off - inner_walk.in_length, inner_walk.in_step)});
            list.taps.push_back({{o.k, i.k}});
        }
    return list;
}

void load_pair(
    float *to, dim pair, const void *from, data_type type, dim at, dim stride, dim count) {
    if (count < pair) std::fill_n(to, pair, 0.0F);
    const dim lanes = pair / 2;
    const bool by_halves = type == data_type::bf16 && count > lanes;
    if (type == data_type::f32)
        load_values(to, lanes, static_cast<const float *>(from) + at, stride, count, by_halves);
    if (type == data_type::bf16)
        load_values(to, lanes, static_cast<const bf16 *>(from) + at, stride, count, by_halves);
    if (type == data_type::f16)
        load_values(to, lanes, static_cast<const f16 *>(from) + at, stride, count, by_halves);
}

}  // namespace convgrad::cpu
