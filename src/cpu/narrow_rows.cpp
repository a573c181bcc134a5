// narrow_data with one to three output channels: a vector of positions, read at any offset, would
// serve no more products than that, and loads would be waited for. The taps of a row read the same
// positions, each shifted, so their weights are multiplied together, at the place of the first of
// them,
//   D[tap of the row][channel][position] = Σ_rows of taps weights · patch
// and the shifts follow: C[channel][position] = Σ_taps of a row D[tap][channel][position + shift].
#include <algorithm>

#include "cpu/narrow_parts.hpp"

namespace convgrad::cpu {
namespace {

constexpr dim most_vectors = 4;

}  // namespace

bool narrow_data::shares_rows(const conv_phase &f) const {
    constexpr dim full = 4;    // channels that keep the arithmetic busy by themselves
    constexpr dim least = 32;  // steps of a product that pay for the shifts
    const dim columns = row_taps(f);
    // Without registers for more rows (AVX2) nothing is shared.
    const bool taller = kernels_.max_m[most_vectors] >= 2 * roles_.out_c;
    return !pixels_ && taller && columns > 1 && roles_.out_c < full
           && units(roles_.in_c) * (f.taps / columns) >= least;
}

dim narrow_data::first_shift(const conv_phase &f) const {
    const auto first = taps_of_.patch.begin() + f.first_tap;
    return *std::min_element(first, first + row_taps(f));
}

dim narrow_data::last_shift(const conv_phase &f) const {
    const auto first = taps_of_.patch.begin() + f.first_tap;
    return *std::max_element(first, first + row_taps(f)) - first_shift(f);
}

/// Rows of taps that meet the input somewhere, where they start in the weights and in the patch.
dim narrow_data::list_rows(
    const scratch &s, const task &t, const conv_phase &f, dim d, dim h, dim rows) const {
    const auto inside = [&](int a, dim first, dim count, dim off) {
        const dim low = (t.t0[a] + first) * walk_[a].in_step + off;
        return low + (count - 1) * walk_[a].in_step >= 0 && low < walk_[a].in_length;
    };
    const dim columns = row_taps(f);
    const dim to_first = taps_of_.patch[static_cast<std::size_t>(f.first_tap)] - first_shift(f);
    dim runs = 0, tap = f.first_tap;
    for (const axis_tap &kd : f.axis[0]->taps)
        for (const axis_tap &kh : f.axis[1]->taps) {
            s.runs[runs] = tap_packed_[static_cast<std::size_t>(tap)];
            s.runs[taps_ + runs] = tap_patch_[static_cast<std::size_t>(tap)] - 4 * to_first;
            runs += inside(0, d, 1, kd.off) && inside(1, h, rows, kh.off) ? 1 : 0;
            tap += columns;
        }
    return runs;
}

/// Rows [h, h + rows) of plane d of a phase; `c` is where C has the first of its first channel.
void narrow_data::multiply_rows(scratch &s, const task &t, const conv_phase &f, dim chunk, dim d,
    dim h, dim rows, float *c) const {
    const dim columns = row_taps(f), width = columns * roles_.out_c;
    const dim results =
        (rows - 1) * patch_[2].length + std::min(t.length[2], f.axis[2]->count - t.t0[2]);
    const dim count = results + last_shift(f);
    product_args args{};
    args.k = units(chunk_channels(chunk));
    args.ldc = d_pitch_;
    args.a_m = 4;
    args.a_step = 4 * width;
    args.b_step = 4 * patch_pitch_;
    args.runs = list_rows(s, t, f, d, h, rows);
    args.a_run = s.runs;
    args.b_run = s.runs + taps_;
    const char *weights = s.weights + (keep_weights_ ? 4 * chunk * weights_units() : 0);
    const dim start = (d * patch_[1].length + h) * patch_[2].length;
    for (dim g = 0; g < t.groups; ++g, c += roles_.out_c * c_pitch_) {
        args.a = weights + 4 * g * taps_ * units(k_chunk_) * roles_.out_c;
        for (dim x = 0; x < count; x += most_vectors * kernels_.lanes) {
            const auto vectors =
                static_cast<int>(std::min(most_vectors, div_up(count - x, kernels_.lanes)));
            args.b = s.patch + 4 * (g * units(k_chunk_) * patch_pitch_ + start + x);
            args.c = s.d + x;
            s.ask();
            multiply_run(kernels_, args, width, vectors);
        }
        shift_rows(s, f, results, chunk > 0, c);
    }
}

void narrow_data::shift_rows(
    const scratch &s, const conv_phase &f, dim count, bool accumulate, float *c) const {
    const dim first = first_shift(f);
    for (dim o = 0; o < roles_.out_c; ++o)
        for (dim tap = 0; tap < row_taps(f); ++tap) {
            const float *from = s.d + (tap * roles_.out_c + o) * d_pitch_
                                + taps_of_.patch[static_cast<std::size_t>(f.first_tap + tap)]
                                - first;
            float *to = c + o * c_pitch_;
            if (tap == 0 && !accumulate)
                std::copy(from, from + count, to);
            else
                for (dim x = 0; x < count; ++x) to[x] += from[x];
        }
}

}  // namespace convgrad::cpu
