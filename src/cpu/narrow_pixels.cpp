// narrow_data with channels side by side, by whole vectors of outputs or in quads (see quad_product
// in kernels.hpp): nothing is transposed, neither on the way in nor on the way out.
#include <algorithm>
#include <cstring>

#include "cpu/narrow_parts.hpp"

namespace convgrad::cpu {
namespace {

constexpr dim most_quads = 4;       // vectors of a product in quads,
constexpr dim most_whole = 3;       // and of whole ones: 4 leave two rows to AVX2
constexpr dim left_together = 128;  // results of a channel, on planes

}  // namespace

/// Units of pairs gain more than turning costs (32 groups of 8 on 28×28: 1.28 times as fast); those
/// that two groups of 4 share do not (0.94), nor does f32.
bool narrow_data::turns_planes() const {
    return kernels_.k_per_unit > 1 && roles_.in_c % quad_channels() == 0 && walk_[0].in_length == 1
           && roles_.in.x[2] == 1
           && (walk_[1].in_length == 1 || roles_.in.x[1] == walk_[2].in_length);
}

/// Rows of planes leave together where they follow each other: short ones do not fill lines.
dim narrow_data::rows_of_c() const {
    const auto one_row = [&](const conv::data_strides &s) { return s.x[1] == tile_[2] * s.x[2]; };
    const bool whole = walk_[1].out_step == 1 && walk_[2].out_step == 1
                       && tile_[2] == walk_[2].longest && one_row(roles_.out)
                       && (!p_.add || one_row(p_.add_strides));
    return whole && roles_.out.c != 1 ? std::clamp<dim>(left_together / tile_[2], 1, tile_[1]) : 1;
}

/// [unit's groups][tap][unit of channels][vector of four outputs][output][channel or pair]
void narrow_data::pack_quads(scratch &s, const task &t) const {
    const dim together = quad_groups(), each = kernels_.k_per_unit, lanes = 4 / together;
    unit_writer unit{kernels_, {}};
    const auto pack = [&](const auto *weights) {
        char *out = s.weights;
        for (dim g = 0; g < t.groups; g += together)
            for (dim tap = 0; tap < taps_; ++tap)
                for (dim k = 0; k < quad_units(); ++k)
                    for (dim o = 0; o < roles_.out_c; ++o)
                        for (dim q = 0; q < 4; ++q, out += 4) {
                            const auto *from =
                                weights + (t.first_group + g + q / lanes) * p_.weights.g
                                + taps_of_.weights[static_cast<std::size_t>(tap)]
                                + (quad_channels() * k + each * (q % lanes)) * roles_.weights_in
                                + o * roles_.weights_out;
                            const std::uint32_t bits = unit(from, roles_.weights_in, each);
                            std::memcpy(out, &bits, 4);
                        }
    };
    if (p_.type == data_type::f32) pack(static_cast<const float *>(t.data->weights));
    if (p_.type == data_type::bf16) pack(static_cast<const bf16 *>(t.data->weights));
    if (p_.type == data_type::f16) pack(static_cast<const f16 *>(t.data->weights));
    s.weights_range.merge(unit.range);
}

value_range narrow_data::pack_pixels(const scratch &s, const task &t) const {
    const dim size = static_cast<dim>(size_of(p_.type)), channels = t.groups * roles_.in_c;
    const char *in = static_cast<const char *>(roles_.input(*t.data))
                     + size * (t.n * roles_.in.n + t.first_group * roles_.in_c * roles_.in.c);
    conv::data_strides strides = roles_.in;
    dim first_row = 0;  // of what is packed
    if (stage_rows_ > 0) {
        const input_range met = patch_range(walk_[1], patch_[1], t.t0[1], tile_[1] - t.length[1]);
        first_row = std::max<dim>(met.first, 0);
        const dim rows = std::min(met.last, walk_[1].in_length) - first_row;
        kernels_.transpose({in + size * first_row * roles_.in.x[1], size * roles_.in.c, channels,
            rows * walk_[2].in_length, size, s.stage, size * channels});
        in = s.stage;
        strides.x = {0, walk_[2].in_length * channels, channels};
    }
    value_range range;
    for_each_patch_row(walk_, patch_, tile_, t.t0, t.length, [&](patch_row row) {
        // list_runs leaves them out
        if (row.in[0] < 0 || row.in[0] >= walk_[0].in_length) return;
        if (row.in[1] < 0 || row.in[1] >= walk_[1].in_length) return;
        row.in[1] -= first_row;
        range.merge(kernels_.pack_pixels(
            {in + size * row.offset(strides), p_.type, 1, strides.x[2] * walk_[2].in_step, channels,
                row.count, row.lo, row.hi, s.patch + row.at * pixel_bytes_},
            pixel_bytes_));
    });
    return range;
}

void narrow_data::multiply_pixels(scratch &s, const task &t) const {
    const dim together = quads_ ? quad_groups() : 1, columns = groups_ * roles_.out_c;
    const dim wide = quads_ ? 4 : kernels_.lanes, vectors = roles_.out_c / wide;  // of outputs
    const dim step = quads_ ? most_quads : div_up(vectors, div_up(vectors, most_whole));
    const dim vector_bytes = 4 * dim{kernels_.lanes};
    // Whole groups of pairs leave from registers where nothing follows.
    const bool leaves = kernels_.k_per_unit > 1 && together == 1 && vectors % 2 == 0
                        && roles_.out.c == 1 && !p_.bias && !p_.add && !p_.relu && !p_.accumulate
                        && !(s.weights_range.nonfinite && t.padded);
    product_args args{};
    args.k = quads_ ? quad_units() : roles_.in_c;
    args.ldc = columns;
    args.a_m = pixel_bytes_;
    args.a_step = quads_ ? 16 : 4;
    args.b_step = vector_bytes * vectors;
    const dim group_bytes = taps_ * args.k * args.b_step;  // of weights
    args.ld_out = roles_.out.x[2] * walk_[2].out_step;
    auto *out = static_cast<std::uint16_t *>(roles_.output(*t.data));
    for (const conv_phase &f : taps_of_.phases) {
        dim length[3];
        if (!phase_length(f, t, length)) continue;
        for (dim d = 0; d < length[0]; ++d)
            for (dim h = 0; h < length[1]; ++h) {
                args.a_run = t.padded ? s.runs : tap_patch_.data() + f.first_tap;
                args.b_run = t.padded ? s.runs + taps_ : tap_packed_.data() + f.first_tap;
                args.runs = t.padded ? list_runs(walk_, f, t, {d, h, 1, 0, length[2]},
                                {tap_patch_.data(), tap_packed_.data()}, {s.runs, s.runs + taps_})
                                     : f.taps;
                const dim row = d * patch_[1].length * patch_[2].length + h * patch_[2].length;
                const dim among = h % c_rows_;  // rows that leave together
                float *c = s.c + among * length[2] * columns;
                for (dim g = 0; g < t.groups; g += together, s.ask())
                    for (dim v = 0; v < vectors; v += step) {
                        const auto n = static_cast<int>(std::min(step, vectors - v));
                        const dim blocks = div_up(length[2], kernels_.max_m[n]);
                        args.b = s.weights + g / together * group_bytes + vector_bytes * v;
                        for (dim i = 0; i < blocks; ++i) {
                            const dim x = length[2] * i / blocks,
                                      m = length[2] * (i + 1) / blocks - x;
                            args.a =
                                s.patch + (row + x) * pixel_bytes_ + 4 * units(g * roles_.in_c);
                            args.c = c + x * columns + g * roles_.out_c + wide * v;
                            if (leaves)
                                args.out = out + row_at(roles_.out, t, f, d, h) + x * args.ld_out
                                           + g * roles_.out_c + wide * v;
                            if (quads_)
                                kernels_.quad_product(
                                    args, static_cast<int>(m), n, together > 1 ? roles_.out_c : 0);
                            else
                                kernels_.product(args, static_cast<int>(m), n);
                        }
                    }
                if (s.weights_range.nonfinite && t.padded) sum_carefully(t, f, d, h, length[2], c);
                if (!leaves && (among == c_rows_ - 1 || h == length[1] - 1))
                    store_row(s, t, f, d, h - among, (among + 1) * length[2], s.c);
            }
    }
}

}  // namespace convgrad::cpu
