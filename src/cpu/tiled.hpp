// What the two dense drivers (tiled_data, tiled_weights) share: patches and runs.
#pragma once

#include <algorithm>
#include <numeric>

#include "conv/problem.hpp"
#include "conv/taps.hpp"
#include "cpu/fetch_lists.hpp"
#include "cpu/geometry.hpp"
#include "cpu/isa.hpp"
#include "cpu/kernels/kernels.hpp"
#include "cpu/phases.hpp"
#include "cpu/prefetch.hpp"

namespace convgrad::cpu {

using conv::clip;

/// Positions beyond a patch that a kernel may read (never use) because its blocks are whole.
inline constexpr dim patch_slack = 32;

/// Whether rows so many bytes apart are all at the same place of a page: they take the same few
/// sets of L1, and are not read beside each other where they lie.
constexpr bool shares_sets(dim bytes) {
    constexpr dim same_sets = 1024;
    return bytes % same_sets == 0;
}

inline dim patch_bytes(const kernel_set &kernels, dim units, dim positions) {
    return round_up_to(
        units * kernels.parts * positions * kernels.unit_bytes + patch_slack * kernels.unit_bytes,
        64);
}

/// A tile of about `positions`: whole rows first (at most `row` long), then planes; cut evenly.
inline void choose_tile(
    const axis_walk (&walk)[3], dim positions, dim (&tile)[3], dim row = dim{1} << 40) {
    for (int a = 2; a >= 0; --a) {
        const dim length = a == 2 ? std::min(walk[a].longest, row) : walk[a].longest;
        tile[a] = div_up(length, div_up(length, std::clamp<dim>(positions, 1, length)));
        positions /= tile[a];
    }
}

/// Where a tile lies.
struct tile_place {
    dim t0[3];      // first position
    dim length[3];  // positions of the longest phase in this tile
    bool padded;    // some tap lies outside the input
};

/// Puts a task at tile `index`, tiles along the last axis first; what is left of the index.
inline dim place_tile(const axis_walk (&walk)[3], const dim (&tile)[3], const dim (&tiles)[3],
    dim index, tile_place &place) {
    place.padded = false;
    for (int a = 2; a >= 0; --a) {
        place.t0[a] = index % tiles[a] * tile[a];
        index /= tiles[a];
        place.length[a] = std::min(tile[a], walk[a].longest - place.t0[a]);
        place.padded = place.padded || touches_padding(walk[a], place.t0[a], place.length[a]);
    }
    return index;
}

/// A tile of some images and of some groups of channels.
struct group_place : tile_place {
    dim n, images, first_group, groups;
};

/// What place_tile() left of an index: images first, `images` of them together, then groups.
inline void place_groups(
    const conv::problem &p, dim groups, dim images, dim index, group_place &place) {
    const dim image_groups = div_up(p.mb, images);
    place.first_group = index / image_groups * groups;
    place.groups = std::min(groups, p.groups - place.first_group);
    place.n = index % image_groups * images;
    place.images = std::min(images, p.mb - place.n);
}

/// How much of a tile a phase has; false: nothing.
template <typename Phase>
bool phase_length(const Phase &f, const tile_place &place, dim (&length)[3]) {
    for (int a = 0; a < 3; ++a)
        length[a] = std::min(place.length[a], f.axis[a]->count - place.t0[a]);
    return length[0] > 0 && length[1] > 0 && length[2] > 0;
}

/// Brackets the products of one thread.
class kernel_session {
public:
    explicit kernel_session(const kernel_set &kernels) : leave_(kernels.leave) {
        if (kernels.enter != nullptr) kernels.enter();
    }
    kernel_session(const kernel_session &) = delete;
    kernel_session &operator=(const kernel_session &) = delete;
    ~kernel_session() {
        if (leave_ != nullptr) leave_();
    }

private:
    void (*leave_)();
};

/// One row of a patch along the last axis.
struct patch_row {
    dim at;      // position in the patch
    dim in[3];   // input index of its first element, which may lie outside
    dim count;   // positions
    dim lo, hi;  // those that exist in the input

    [[nodiscard]] dim offset(const conv::data_strides &s) const {
        return in[0] * s.x[0] + in[1] * s.x[1] + in[2] * s.x[2];
    }
};

/// Calls body(patch_row) for each row of the patch that a tile needs: the tile starts at t0 and has
/// `length` ≤ tile positions per axis.
template <typename Body>
void for_each_patch_row(const axis_walk (&walk)[3], const axis_patch (&patch)[3],
    const dim (&tile)[3], const dim (&t0)[3], const dim (&length)[3], Body &&body) {
    for (const auto &sd : patch[0].segments)
        for (dim d = 0; d < sd.count - (tile[0] - length[0]); ++d)
            for (const auto &sh : patch[1].segments)
                for (dim h = 0; h < sh.count - (tile[1] - length[1]); ++h)
                    for (const auto &sw : patch[2].segments) {
                        patch_row row{};
                        row.at = patch_index(patch, sd.at + d, sh.at + h, sw.at);
                        row.in[0] = t0[0] * walk[0].in_step + sd.in + d * walk[0].in_step;
                        row.in[1] = t0[1] * walk[1].in_step + sh.in + h * walk[1].in_step;
                        row.in[2] = t0[2] * walk[2].in_step + sw.in;
                        row.count = sw.count - (tile[2] - length[2]);
                        const bool inside = row.in[0] >= 0 && row.in[0] < walk[0].in_length
                                            && row.in[1] >= 0 && row.in[1] < walk[1].in_length;
                        if (inside)
                            clip(row.in[2], walk[2].in_step, row.count, walk[2].in_length, row.lo,
                                row.hi);
                        body(row);
                    }
}

/// Calls body(offset in a tensor with strides `s`, row of the patch) for each row that a tile
/// needs, rows whole; those outside the input are never read: their taps are left out.
template <typename Body>
void for_each_input_row(const axis_walk (&walk)[3], const axis_patch *patch, const dim (&tile)[3],
    const tile_place &t, const conv::data_strides &s, Body &&body) {
    for (const auto &sd : patch[0].segments)
        for (dim d = 0; d < sd.count - (tile[0] - t.length[0]); ++d)
            for (const auto &sh : patch[1].segments)
                for (dim h = 0; h < sh.count - (tile[1] - t.length[1]); ++h) {
                    const dim x[2] = {(t.t0[0] + d) * walk[0].in_step + sd.in,
                        (t.t0[1] + h) * walk[1].in_step + sh.in};
                    if (x[0] < 0 || x[0] >= walk[0].in_length || x[1] < 0
                        || x[1] >= walk[1].in_length)
                        continue;
                    body(x[0] * s.x[0] + x[1] * s.x[1], (sd.at + d) * patch[1].length + sh.at + h);
                }
}

/// Input elements along an axis.
struct input_range {
    dim first, last;
};
/// What positions from t0 on need, between the first and the last, padding included; the tile is
/// `missing` positions shorter than the patch was made for.
inline input_range patch_range(
    const axis_walk &walk, const axis_patch &patch, dim t0 = 0, dim missing = 0) {
    input_range range{t0 * walk.in_step + patch.segments[0].in, 0};
    for (const auto &segment : patch.segments) {
        const dim in = t0 * walk.in_step + segment.in;
        range.first = std::min(range.first, in);
        range.last = std::max(range.last, in + (segment.count - missing - 1) * walk.in_step + 1);
    }
    return range;
}

/// Positions of an axis from `first` on, at most `count`, whose taps meet the input or not just
/// like those of the first.
inline dim same_taps(const axis_walk &walk, const axis_phase &phase, dim first, dim count) {
    for (const axis_tap &tap : phase.taps) {
        dim lo, hi;
        clip(first * walk.in_step + tap.off, walk.in_step, count, walk.in_length, lo, hi);
        count = lo > 0 ? lo : hi > 0 ? hi : count;
    }
    return count;
}

/// What positions [first, first + count) of an axis cost tap by tap if they are cut into pieces of
/// same_taps() and a piece leaves out the taps that do not meet the input.
template <typename Cost>
auto cost_of_pieces(
    const axis_walk &walk, const axis_phase &phase, dim first, dim count, Cost &&cost) {
    decltype(cost(count)) sum = 0;
    for (dim x = 0, piece; x < count; x += piece) {
        piece = same_taps(walk, phase, first + x, count - x);
        for (const axis_tap &tap : phase.taps) {
            const dim in = (first + x) * walk.in_step + tap.off;
            if (in >= 0 && in < walk.in_length) sum += cost(piece);
        }
    }
    return sum;
}

/// Rows [h, h + rows) of plane d of a tile, and of each columns [x, x + columns).
struct tile_rows {
    dim d, h, rows, x, columns;
};

/// The taps of a phase of which some position of `of` lies inside the input: their entries of two
/// lists, and how many. Taps that meet only padding would add zeros: with large dilations, or on
/// small maps, that is a third of all.
inline dim list_runs(const axis_walk (&walk)[3], const conv_phase &f, const tile_place &t,
    const tile_rows &of, const dim *const (&lists)[2], dim *const (&out)[2]) {
    const auto inside = [&](int a, dim first, dim count, dim off) {
        const dim low = (t.t0[a] + first) * walk[a].in_step + off;
        return low + (count - 1) * walk[a].in_step >= 0 && low < walk[a].in_length;
    };
    dim runs = 0, tap = f.first_tap;
    for (const axis_tap &kd : f.axis[0]->taps)
        for (const axis_tap &kh : f.axis[1]->taps) {
            const bool real = inside(0, of.d, 1, kd.off) && inside(1, of.h, of.rows, kh.off);
            for (const axis_tap &kw : f.axis[2]->taps) {
                out[0][runs] = lists[0][tap];
                out[1][runs] = lists[1][tap++];
                runs += real && inside(2, of.x, of.columns, kw.off) ? 1 : 0;
            }
        }
    return runs;
}

/// How results of a data pass leave for elements from `out_at` on (of `add`: from `add_at` on),
/// positions side by side in C. The caller adds C, channels, positions, bias and how lines are
/// written.
inline store_args results_from(const conv::problem &p, const data_roles &roles,
    const conv::buffers &data, dim out_at, dim add_at) {
    const dim size = static_cast<dim>(size_of(p.type));
    store_args args{};
    args.c_xs = 1;
    args.type = p.type;
    args.out = static_cast<char *>(roles.output(data)) + size * out_at;
    args.cs = roles.out.c;
    args.xs = roles.out.x[2];
    if (p.add) args.add = static_cast<const char *>(data.add) + size * add_at;
    args.add_cs = p.add_strides.c;
    args.add_xs = p.add_strides.x[2];
    args.accumulate = p.accumulate;
    args.relu = p.relu;
    return args;
}

/// Rough cycles of one k step of a block of C: multiply-adds, or loads where there are more of
/// those, never less than the latency that few accumulators cannot hide; plus what loads cost
/// beside arithmetic and the step itself.
/// AVX2 multiplies two vectors at once, so that it waits for its sums sooner, and for loads.
inline double step_cost(const kernel_set &k, double rows, double columns) {
    const double loads = k.set == isa::avx2 ? 1.0 : 0.6, chains = k.set == isa::avx2 ? 9.0 : 6.0;
    return std::max({rows * columns, loads * (rows + columns), chains}) + 0.12 * rows
           + 0.5 * columns + 1.0;
}
inline double step_cost(const kernel_set &k, dim rows, dim vectors) {
    return step_cost(k, static_cast<double>(rows), static_cast<double>(vectors));
}

/// Vectors of a block of C whose rows are many: the widest that multiply nearly as fast as any.
/// (AVX2's blocks of four have two rows, whose sums wait for each other: two thirds of the speed.)
inline int widest_vectors(const kernel_set &k) {
    const auto each = [&](int v) {
        return step_cost(k, dim{k.max_m[v]}, dim{v}) / (k.max_m[v] * v);
    };
    double least = each(1);
    for (int v = 2; v <= k.max_vectors; ++v) least = std::min(least, each(v));
    int v = k.max_vectors;
    while (each(v) > 1.1 * least) --v;
    return v;
}

/// The same for rows that are few, in blocks of nearly equal height, and vectors that are many.
inline int widest_vectors(const kernel_set &k, dim rows) {
    const auto each = [&](int v) {
        const dim pieces = div_up(rows, k.max_m[v]), low = rows / pieces, taller = rows % pieces;
        return (static_cast<double>(pieces - taller) * step_cost(k, low, dim{v})
                   + static_cast<double>(taller) * step_cost(k, low + 1, dim{v}))
               / v;
    };
    double least = each(1);
    for (int v = 2; v <= k.max_vectors; ++v) least = std::min(least, each(v));
    int v = k.max_vectors;
    while (each(v) > 1.12 * least) --v;
    return v;
}

inline const char *bytes_at(const void *p) {
    return static_cast<const char *>(p);
}

/// What of the next block of rows comes from memory while one is multiplied.
struct fetching {
    bool a = false;                 // rows of A follow each other, and nothing has read them yet
    dim ahead = 0;                  // rows of A that have been read
    bool c = false;                 // C is the output
    fetch_ahead *others = nullptr;  // instead of those
};

constexpr dim any_height = 1 << 20;

/// Rows `pitch` bytes apart that stay in L1 while all of them are gone through side by side: each
/// way of it holds one line for all addresses that are a page apart, and B needs one.
inline dim rows_held(dim pitch) {
    constexpr dim page = 4096;
    return page / std::gcd(pitch, page)
           * std::max<dim>(static_cast<dim>(cache_sizes().l1d) / page - 1, 1);
}

/// `count` rows of C in blocks of nearly equal height, at most `tallest`.
inline void multiply_run(const kernel_set &kernels, product_args args, dim count, int vectors,
    fetching fetch = {}, dim tallest = any_height) {
    const dim row = args.ldc;
    if (kernels.tiles()) {
        for (dim left = count; left > 0; left -= tile_block) {
            if (args.a_ends && left < tile_block) {
                args.c -= (tile_block - left) * row;
                args.a -= (tile_block - left) * args.a_row;
                left = tile_block;
            }
            kernels.product(args, left > amx_tile_rows ? 32 : 16, vectors);
            args.c += tile_block * row;
            args.a += 2 * args.a_tile;
        }
        return;
    }
    const dim blocks = div_up(count, std::min<dim>(tallest, kernels.max_m[vectors]));
    const dim low = count / blocks;
    dim taller = count % blocks;  // blocks that have one row more
    const bool narrow = args.out != nullptr;
    const dim pitch = narrow ? 2 * args.ld_out : 4 * row;
    for (dim b = 0; b < blocks; ++b) {
        const dim m = low + (taller-- > 0 ? 1 : 0);
        const char *c = narrow ? bytes_at(args.out) : bytes_at(args.c);
        args.fetch[0] = {c + m * pitch, pitch, fetch.c && b + 1 < blocks ? m : 0};
        args.fetch[1] = {
            args.a + (fetch.ahead + m) * args.a_m, 128, fetch.a ? div_up(m * args.a_m, 128) : 0};
        if (fetch.others != nullptr) fetch.others->fill(args);
        kernels.product(args, static_cast<int>(m), vectors);
        args.c += m * row;
        args.a += m * args.a_m;
        if (narrow) args.out += m * args.ld_out;
    }
}

}  // namespace convgrad::cpu
