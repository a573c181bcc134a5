// For each task (a block of groups × a tile of positions of one image):
//   for each chunk of reduced channels:
//     the patch is packed with positions side by side, padding as zeros            pack_patch
//     C[channel][position] += Σ_taps weights(tap) · patch(tap)                     multiply
//   C leaves with bias, add, ReLU and one rounding                                 store_tile
//
// All rows of a tile are one run of positions: what lies between two rows of the output (the halo
// of the patch) is computed and dropped, so that even rows of 7 fill whole vectors.
#include "cpu/narrow_data.hpp"

#include <algorithm>
#include <cstring>

#include "cpu/element.hpp"
#include "cpu/narrow_parts.hpp"
#include "cpu/tasks.hpp"
#include "cpu/workspace_limit.hpp"

namespace convgrad::cpu {
namespace {

constexpr dim tile_bytes = 256 << 10;  // patch and C of a task
constexpr dim channels_wanted = 64;    // so that NXC data is read in whole cache lines
constexpr dim most_tasks = dim{1} << 30;
constexpr dim most_vectors = 4;
constexpr dim weights_most = 1 << 20;  // that stay packed

}  // namespace

narrow_data::narrow_data(const conv::problem &p, const kernel_set &kernels, const kernel_set *exact,
    int threads, std::size_t workspace_limit)
    : p_(p), kernels_(kernels), roles_(p) {
    for (std::size_t a = 0; a < 3; ++a)
        walk_[a] = roles_.forward ? walk_forward(p.x[a]) : walk_backward(p.x[a]);
    taps_ = count_taps(walk_);
    if (p.mb == 0 || p.groups == 0 || roles_.in_c == 0 || roles_.out_c == 0 || taps_ == 0
        || count_positions(walk_) == 0)
        return;  // fill_unreached does what there is to do
    // Where a tile decides what `exact` takes, the number of threads must not decide the tile.
    choose(exact != nullptr ? cut_threads(p, kernels) : threads);
    const auto settle_both = [&] {
        settle();
        if (exact != nullptr) exact_.reset(new narrow_data(*this, *exact));
    };
    settle_both();
    while (scratch_bytes() > workspace_limit && shrink()) settle_both();
    check_workspace("convolution", scratch_bytes(), workspace_limit);
    workers_ = static_cast<int>(std::min<dim>(
        {std::max(threads, 1), tasks_, static_cast<dim>(workspace_limit / scratch_bytes())}));
}

narrow_data::narrow_data(const narrow_data &like, const kernel_set &kernels)
    : p_(like.p_), kernels_(kernels), roles_(like.roles_), taps_(like.taps_), groups_(like.groups_),
      k_chunk_(like.k_chunk_), chunks_(like.chunks_) {
    for (int a = 0; a < 3; ++a) {
        walk_[a] = like.walk_[a];
        tile_[a] = like.tile_[a];
    }
    settle();
}

dim narrow_data::chunk_channels(dim chunk) const {
    return std::min(k_chunk_, roles_.in_c - chunk * k_chunk_);
}

bool narrow_data::in_quads() const {
    if (kernels_.quad_product == nullptr || chunks_ > 1) return false;
    if (roles_.in.c != 1 && !turns_planes()) return false;
    // One vector of f32 sums would need a load for each product.
    if (roles_.out_c % 4 != 0 || roles_.out_c * kernels_.k_per_unit < 8) return false;
    return roles_.in_c % quad_channels() == 0
           || (2 * roles_.in_c == quad_channels() && p_.groups % 2 == 0 && groups_ % 2 == 0);
}

/// What has quads is as fast by them, and vectors of four lanes were not measured.
bool narrow_data::in_vectors() const {
    return kernels_.quad_product == nullptr && kernels_.lanes >= 8 && chunks_ == 1
           && roles_.in.c == 1 && roles_.out_c % kernels_.lanes == 0;
}

void narrow_data::choose(int threads) {
    chunks_ = div_up(roles_.in_c, channels_wanted);
    k_chunk_ = round_up_to(div_up(roles_.in_c, chunks_), kernels_.k_per_unit);
    chunks_ = div_up(roles_.in_c, k_chunk_);
    const dim widest = std::max(roles_.in_c, roles_.out_c);
    groups_ = chunks_ > 1 ? 1 : std::clamp<dim>(channels_wanted / widest, 1, p_.groups);
    dim each = 4 * groups_ * (units(k_chunk_) + roles_.out_c * count_phases(walk_));
    if (in_quads() || in_vectors()) {  // a row of C at a time, and whole lines of 16-bit values too
        if (roles_.in.c == 1) groups_ = std::min(kernels_.k_per_unit * groups_, p_.groups);
        each = 4 * groups_ * units(roles_.in_c);
    }
    dim positions = std::max<dim>(64, tile_bytes / each);
    const dim tasks_per_tile = div_up(p_.groups, groups_) * p_.mb;
    if (threads > 1)
        positions = std::max<dim>(
            64, std::min(
                    positions, div_up(count_positions(walk_) * tasks_per_tile, 10 * dim{threads})));
    choose_tile(walk_, positions, tile_);
}

void narrow_data::settle() {
    dim patch_positions = 1;
    for (int a = 0; a < 3; ++a) {
        patch_[a] = make_patch(walk_[a], tile_[a]);
        patch_positions *= patch_[a].length;
        tiles_[a] = div_up(walk_[a].longest, tile_[a]);
    }
    const dim slack = most_vectors * kernels_.lanes;
    vectors_ = widest_vectors(kernels_, roles_.out_c);
    quads_ = in_quads();
    pixels_ = quads_ || in_vectors();
    stage_rows_ = 0;
    if (pixels_ && roles_.in.c != 1) {
        const input_range met = patch_range(walk_[1], patch_[1]);
        stage_rows_ = std::min(walk_[1].in_length, met.last - met.first);
    }
    c_rows_ = rows_of_c();
    pixel_bytes_ = round_up_to(4 * units(groups_ * roles_.in_c), 64);
    patch_pitch_ = round_up_to(patch_positions, 16);
    plane_pitch_ = round_up_to((tile_[1] - 1) * patch_[2].length + tile_[2], kernels_.lanes);
    c_pitch_ = round_up_to(tile_[0] * plane_pitch_ + slack, 16);
    taps_of_ = list_phases(walk_, patch_, p_.weights, roles_.in);
    tap_patch_.clear();
    tap_packed_.clear();
    for (std::size_t tap = 0; tap < taps_of_.patch.size(); ++tap) {
        const auto index = static_cast<dim>(tap);
        tap_patch_.push_back((pixels_ ? pixel_bytes_ : 4) * taps_of_.patch[tap]);
        tap_packed_.push_back(quads_ ? 64 * index * quad_units() * quad_vectors()
                                     : 4 * index * units(k_chunk_) * roles_.out_c);
    }
    d_rows_ = d_pitch_ = 0;
    for (const conv_phase &f : taps_of_.phases)
        if (shares_rows(f)) {
            d_rows_ = std::max(d_rows_, row_taps(f) * roles_.out_c);
            d_pitch_ = std::max(d_pitch_, round_up_to(plane_pitch_ + last_shift(f) + slack, 16));
        }
    keep_weights_ = 4 * chunks_ * weights_units() <= weights_most;
    // Quads of pairs read and write row by row, which the hardware follows.
    ahead_ = worth_asking(p_) && (!pixels_ || kernels_.k_per_unit == 1);
    group_blocks_ = div_up(p_.groups, groups_);
    const dim per_image = group_blocks_ * tiles_[0] * tiles_[1] * tiles_[2];
    images_per_task_ = std::max<dim>(1, div_up(per_image * p_.mb, most_tasks));
    tasks_ = per_image * div_up(p_.mb, images_per_task_);
}

bool narrow_data::shrink() {
    if (groups_ > 1) {
        groups_ = div_up(groups_, 2);
        return true;
    }
    if (const dim positions = tile_[0] * tile_[1] * tile_[2]; positions > 1) {
        choose_tile(walk_, positions / 2, tile_);
        return true;
    }
    if (k_chunk_ > kernels_.k_per_unit) {
        k_chunk_ = round_up_to(div_up(k_chunk_, 2), kernels_.k_per_unit);
        chunks_ = div_up(roles_.in_c, k_chunk_);
        return true;
    }
    return false;
}

narrow_data::scratch narrow_data::lay_out(memory_walk &memory) const {
    const dim slack = most_vectors * kernels_.lanes;
    scratch s{};
    s.weights = memory.take<char>(4 * held_units());
    s.patch =
        memory.take_lines<char>(pixels_ ? pixel_bytes_ * patch_pitch_
                                        : 4 * (groups_ * units(k_chunk_) * patch_pitch_ + slack));
    s.stage = memory.take_lines<char>(stage_rows_ * walk_[2].in_length * groups_ * roles_.in_c
                                      * static_cast<dim>(size_of(p_.type)));
    s.c = memory.take<float>(
        groups_ * roles_.out_c
        * (pixels_ ? c_rows_ * tile_[2] : c_pitch_ * static_cast<dim>(taps_of_.phases.size())));
    s.d = memory.take<float>(d_rows_ * d_pitch_);
    s.bias = memory.take_lines<float>(groups_ * roles_.out_c);
    s.runs = memory.take_lines<dim>(2 * taps_);
    if (exact_) s.exact = memory.take<char>(static_cast<dim>(exact_->scratch_bytes()));
    return s;
}

std::size_t narrow_data::scratch_bytes() const {
    return bytes_of_walk([this](memory_walk &memory) { return lay_out(memory); });
}

std::size_t narrow_data::workspace() const {
    return tasks_ == 0 ? 0 : scratch_bytes() * static_cast<std::size_t>(workers_);
}

void narrow_data::execute(
    const conv::buffers &data, char *workspace, const executor &threads) const {
    fill_unreached(p_, roles_, walk_, kernels_, tasks_ == 0, data, threads);
    if (tasks_ == 0) return;
    std::vector<scratch> workers;
    memory_walk memory(workspace);
    for (int w = 0; w < workers_; ++w) workers.push_back(lay_out(memory));
    for_each_task(threads.limited(workers_), tasks_, [&](int worker, dim index) {
        task t = make_task(data, index), next = make_task(data, std::min(index + 1, tasks_ - 1));
        for (dim i = 0; i < t.images; ++i, ++t.n) {
            task following = t;
            ++following.n;
            run_task(workers[static_cast<std::size_t>(worker)], t,
                i + 1 < t.images     ? &following
                : index + 1 < tasks_ ? &next
                                     : nullptr);
        }
    });
}

narrow_data::task narrow_data::make_task(const conv::buffers &data, dim index) const {
    task t{};
    t.data = &data;
    index = place_tile(walk_, tile_, tiles_, index, t);
    place_groups(p_, groups_, images_per_task_, index, t);
    return t;
}

work_list narrow_data::work() const {
    work_list list;
    list.macs_per_second = nominal_speed(kernels_);
    list.stages.push_back(unreached_stage(p_, roles_, walk_, tasks_ == 0, workers_));
    list.stages.push_back({"tiles", tasks_, workers_,
        [this](dim index, dim before) {
            const conv::buffers none;
            const task t = make_task(none, index);
            task_cost cost = cost_of(t);
            const bool held = keep_weights_ && before >= 0
                              && make_task(none, before).first_group == t.first_group;
            if (!held)
                cost.read += static_cast<double>(size_of(p_.type))
                             * static_cast<double>(kernels_.k_per_unit * chunks_ * weights_units());
            return cost;
        }});
    return list;
}

task_cost narrow_data::cost_of(const task &t) const {
    double pairs = 0, outputs = 0;
    dim inputs = 0;
    for (const conv_phase &f : taps_of_.phases) {
        dim length[3];
        if (!phase_length(f, t, length)) continue;
        const dim computed =
            round_up_to((length[1] - 1) * patch_[2].length + length[2], kernels_.lanes);
        pairs += static_cast<double>(length[0] * computed * f.taps);
        outputs += static_cast<double>(length[0] * length[1] * length[2]);
    }
    for_each_patch_row(walk_, patch_, tile_, t.t0, t.length,
        [&](const patch_row &row) { inputs += row.hi - row.lo; });
    const auto each = static_cast<double>(t.images * t.groups);
    const auto in_c = static_cast<double>(roles_.in_c), out_c = static_cast<double>(roles_.out_c);
    const auto size = static_cast<double>(size_of(p_.type));
    return {each * pairs * in_c * out_c, each * size * static_cast<double>(inputs) * in_c,
        each * size * outputs * out_c};
}

/// Never -0, and 0 where there is none: every sum meets it, so that none stays -0. A sum is -0
/// where products underflow, unless a tap in padding adds 0 to it, and which of those are left out
/// depends on the tile.
float narrow_data::bias_of(const conv::buffers &data, dim channel) const {
    return p_.bias ? load_float(data.bias, p_.type, channel * p_.bias_stride) + 0.0F : 0.0F;
}

box_lines narrow_data::input_lines(const task &t, dim chunk) const {
    return patch_box(roles_.input(*t.data), p_.type, roles_.in,
        {t.n, t.first_group * roles_.in_c + chunk * k_chunk_,
            chunks_ == 1 ? t.groups * roles_.in_c : chunk_channels(chunk)},
        walk_, patch_, tile_, t);
}

/// Memory would be waited for when a patch is packed and when results leave: it is asked for while
/// there is arithmetic to do.
void narrow_data::plan_ahead(scratch &s, const task &t, dim chunk, const task *next) const {
    dim products = 0;
    for (const conv_phase &f : taps_of_.phases) {
        dim length[3];
        if (!phase_length(f, t, length)) continue;
        products +=
            t.groups * length[0]
            * div_up((length[1] - 1) * patch_[2].length + length[2], vectors_ * kernels_.lanes);
    }
    const bool last = chunk + 1 == chunks_;
    s.input = !last             ? input_lines(t, chunk + 1)
              : next != nullptr ? input_lines(*next, 0)
                                : box_lines();
    s.output = last ? tile_box(roles_.output(*t.data), p_.type, roles_.out,
                   {t.n, t.first_group * roles_.out_c, t.groups * roles_.out_c}, walk_, t)
                    : box_lines();
    s.input_step = div_up(s.input.lines(), std::max<dim>(products, 1));
    s.output_step = div_up(s.output.lines(), std::max<dim>(products, 1));
}

void narrow_data::run_task(scratch &s, const task &t, const task *next) const {
    if (s.held != t.first_group) {
        s.held = t.first_group;
        s.weights_range = {};
        for (dim c = 0; c < t.groups * roles_.out_c; ++c)
            s.bias[c] = bias_of(*t.data, t.first_group * roles_.out_c + c);
        for (dim chunk = chunks_ - 1; chunk >= 0; --chunk) pack_weights(s, t, chunk);
    }
    for (dim chunk = 0; chunk < chunks_; ++chunk) {
        if (!keep_weights_) pack_weights(s, t, chunk);
        const value_range range = pack_patch(s, t, chunk);
        if (exact_ && !kernels_.limits.allow(range, s.weights_range)) {
            memory_walk memory(s.exact);
            scratch other = exact_->lay_out(memory);
            exact_->run_task(other, t, next);
            return;
        }
        if (ahead_) plan_ahead(s, t, chunk, next);
        multiply(s, t, chunk);
    }
    // A padded tap must contribute nothing, but 0 · ∞ is NaN. Only what needs it is summed again:
    // tiles depend on the number of threads, results must not.
    if (pixels_) return;
    if (s.weights_range.nonfinite && t.padded) multiply_careful(s, t);
    store_tile(s, t);
}

/// [group][tap][unit of reduced channels][output channel], or
/// [group][row of taps][unit of reduced channels][tap of the row][output channel]
void narrow_data::pack_weights(scratch &s, const task &t, dim chunk) const {
    if (quads_) return pack_quads(s, t);
    const dim channels = chunk_channels(chunk), all = units(k_chunk_), each = kernels_.k_per_unit;
    char *chunk_weights = s.weights + (keep_weights_ ? 4 * chunk * weights_units() : 0);
    unit_writer unit{kernels_, {}};
    const auto pack_tap = [&](const auto *weights, dim group, dim tap, dim first, dim columns) {
        for (dim i = 0; i < channels; i += each) {
            const auto *from = weights + (t.first_group + group) * p_.weights.g
                               + taps_of_.weights[static_cast<std::size_t>(tap)]
                               + (chunk * k_chunk_ + i) * roles_.weights_in;
            char *to = chunk_weights
                       + 4 * ((group * taps_ + first) * all + i / each * columns + tap - first)
                             * roles_.out_c;
            for (dim o = 0; o < roles_.out_c; ++o) {
                const std::uint32_t bits = unit(
                    from + o * roles_.weights_out, roles_.weights_in, std::min(each, channels - i));
                std::memcpy(to + 4 * o, &bits, 4);
            }
        }
    };
    const auto pack = [&](const auto *weights) {
        for (const conv_phase &f : taps_of_.phases) {
            const dim columns = shares_rows(f) ? row_taps(f) : 1;
            for (dim g = 0; g < t.groups; ++g)
                for (dim tap = 0; tap < f.taps; ++tap)
                    pack_tap(
                        weights, g, f.first_tap + tap, f.first_tap + tap - tap % columns, columns);
        }
    };
    if (p_.type == data_type::f32) pack(static_cast<const float *>(t.data->weights));
    if (p_.type == data_type::bf16) pack(static_cast<const bf16 *>(t.data->weights));
    if (p_.type == data_type::f16) pack(static_cast<const f16 *>(t.data->weights));
    s.weights_range.merge(unit.range);
}

value_range narrow_data::pack_patch(const scratch &s, const task &t, dim chunk) const {
    if (pixels_) return pack_pixels(s, t);
    const dim size = static_cast<dim>(size_of(p_.type));
    const dim channel = t.first_group * roles_.in_c + chunk * k_chunk_;
    const char *in = static_cast<const char *>(roles_.input(*t.data))
                     + size * (t.n * roles_.in.n + channel * roles_.in.c);
    // A unit has channels of one group only, so groups follow each other only where they fill it.
    const dim channels = chunk_channels(chunk);
    const dim together = channels == k_chunk_ ? t.groups : 1;
    const bool cut = cuts_all(t);
    const auto inside = [&](const patch_row &row, int a) {
        return row.in[a] >= 0 && row.in[a] < walk_[a].in_length;
    };
    value_range range;
    for_each_patch_row(walk_, patch_, tile_, t.t0, t.length, [&](const patch_row &row) {
        if (!inside(row, 0) || (cut && !inside(row, 1))) return;  // list_runs leaves them out
        for (dim g = 0; g < t.groups; g += together) {
            const pack_args args{
                in + size * (row.offset(roles_.in) + g * roles_.in_c * roles_.in.c), p_.type,
                roles_.in.c, roles_.in.x[2] * walk_[2].in_step, together * channels, row.count,
                row.lo, row.hi, s.patch + 4 * (row.at + g * units(k_chunk_) * patch_pitch_)};
            range.merge(kernels_.pack_channels(args, 4 * patch_pitch_, 0));
        }
    });
    return range;
}

void narrow_data::multiply(scratch &s, const task &t, dim chunk) const {
    if (pixels_) return multiply_pixels(s, t);
    product_args args{};
    args.k = units(chunk_channels(chunk));
    args.ldc = c_pitch_;
    args.a_m = 4;
    args.a_step = 4 * roles_.out_c;
    args.b_step = 4 * patch_pitch_;
    args.accumulate = chunk > 0;
    const char *weights = s.weights + (keep_weights_ ? 4 * chunk * weights_units() : 0);
    for (std::size_t ph = 0; ph < taps_of_.phases.size(); ++ph) {
        const conv_phase &f = taps_of_.phases[ph];
        dim length[3];
        if (!phase_length(f, t, length)) continue;
        const bool cut = t.padded && worth_cutting(t, f, length[1]);
        for (dim d = 0; d < length[0]; ++d)
            for (dim h = 0; h < length[1];) {
                const dim rows =
                    cut ? same_taps(walk_[1], *f.axis[1], t.t0[1] + h, length[1] - h) : length[1];
                if (shares_rows(f)) {
                    multiply_rows(s, t, f, chunk, d, h, rows,
                        s.c + static_cast<dim>(ph) * groups_ * roles_.out_c * c_pitch_
                            + d * plane_pitch_ + h * patch_[2].length);
                    h += rows;
                    continue;
                }
                args.a_run = t.padded ? s.runs : tap_packed_.data() + f.first_tap;
                args.b_run = t.padded ? s.runs + taps_ : tap_patch_.data() + f.first_tap;
                args.runs = t.padded ? list_runs(walk_, f, t, {d, h, rows, 0, length[2]},
                                {tap_packed_.data(), tap_patch_.data()}, {s.runs, s.runs + taps_})
                                     : f.taps;
                const dim count = (rows - 1) * patch_[2].length + length[2];
                for (dim g = 0; g < t.groups; ++g)
                    for (dim x = 0; x < count; x += vectors_ * kernels_.lanes) {
                        const auto vectors =
                            static_cast<int>(std::min(vectors_, div_up(count - x, kernels_.lanes)));
                        const dim row = h * patch_[2].length + x;
                        args.a = weights + 4 * g * taps_ * units(k_chunk_) * roles_.out_c;
                        args.b = s.patch
                                 + 4
                                       * (g * units(k_chunk_) * patch_pitch_
                                           + d * patch_[1].length * patch_[2].length + row);
                        args.c = s.c
                                 + (static_cast<dim>(ph) * groups_ + g) * roles_.out_c * c_pitch_
                                 + d * plane_pitch_ + row;
                        s.ask();
                        multiply_run(kernels_, args, roles_.out_c, vectors);
                    }
                h += rows;
            }
    }
}

/// Whether it takes fewer vectors to go through the rows in pieces, each with the taps that meet
/// the input there. A piece writes a few lanes beyond its end, which the next one overwrites; what
/// accumulates cannot be cut.
bool narrow_data::worth_cutting(const task &t, const conv_phase &f, dim rows) const {
    if (chunks_ > 1) return false;
    const dim width = std::min(t.length[2], f.axis[2]->count - t.t0[2]);
    const auto vectors = [&](dim count) {
        return div_up((count - 1) * patch_[2].length + width, kernels_.lanes);
    };
    const dim pieces = cost_of_pieces(walk_[1], *f.axis[1], t.t0[1], rows, vectors);
    return pieces < vectors(rows) * static_cast<dim>(f.axis[1]->taps.size());
}

/// Whether all rows of a tile go in such pieces, which meet no row outside the input.
bool narrow_data::cuts_all(const task &t) const {
    return t.padded && std::ranges::all_of(taps_of_.phases, [&](const conv_phase &f) {
        dim length[3];
        return !phase_length(f, t, length) || worth_cutting(t, f, length[1]);
    });
}

void narrow_data::multiply_careful(const scratch &s, const task &t) const {
    for (std::size_t ph = 0; ph < taps_of_.phases.size(); ++ph) {
        const conv_phase &f = taps_of_.phases[ph];
        dim length[3];
        if (!phase_length(f, t, length)) continue;
        for (dim d = 0; d < length[0]; ++d)
            for (dim h = 0; h < length[1]; ++h)
                sum_carefully(t, f, d, h, length[2],
                    s.c + static_cast<dim>(ph) * groups_ * roles_.out_c * c_pitch_
                        + d * plane_pitch_ + h * patch_[2].length);
    }
}

/// What needs it of row (d, h) of a phase of the tile, which C has at `c`.
void narrow_data::sum_carefully(
    const task &t, const conv_phase &f, dim d, dim h, dim count, float *c) const {
    for (dim channel = 0; channel < t.groups * roles_.out_c; ++channel)
        for (dim w = 0; w < count; ++w) {
            const dim at[3] = {t.t0[0] + d, t.t0[1] + h, t.t0[2] + w};
            const dim group = t.first_group + channel / roles_.out_c, o = channel % roles_.out_c;
            if (!needs_care(p_, roles_, walk_, f, *t.data, group, o, at)) continue;
            c[pixels_ ? w * groups_ * roles_.out_c + channel : channel * c_pitch_ + w] =
                careful_sum(p_, roles_, walk_, f, *t.data, t.n, group, o, at);
        }
}

void narrow_data::store_tile(const scratch &s, const task &t) const {
    for (std::size_t ph = 0; ph < taps_of_.phases.size(); ++ph) {
        const conv_phase &f = taps_of_.phases[ph];
        dim length[3];
        if (!phase_length(f, t, length)) continue;
        for (dim d = 0; d < length[0]; ++d)
            for (dim h = 0; h < length[1]; ++h)
                store_row(s, t, f, d, h, length[2],
                    s.c + static_cast<dim>(ph) * groups_ * roles_.out_c * c_pitch_
                        + d * plane_pitch_ + h * patch_[2].length);
    }
}

dim narrow_data::row_at(
    const conv::data_strides &st, const task &t, const conv_phase &f, dim d, dim h) const {
    const dim y[2] = {t.t0[0] + d, t.t0[1] + h};
    return t.n * st.n + t.first_group * roles_.out_c * st.c
           + (f.axis[0]->first + y[0] * walk_[0].out_step) * st.x[0]
           + (f.axis[1]->first + y[1] * walk_[1].out_step) * st.x[1]
           + (f.axis[2]->first + t.t0[2] * walk_[2].out_step) * st.x[2];
}

/// Row (d, h) of a phase of the tile, which C has at `c`.
void narrow_data::store_row(const scratch &s, const task &t, const conv_phase &f, dim d, dim h,
    dim count, const float *c) const {
    const dim size = static_cast<dim>(size_of(p_.type));
    store_args args{};
    args.type = p_.type;
    args.c = c;
    args.c_cs = pixels_ ? 1 : c_pitch_;
    args.c_xs = pixels_ ? groups_ * roles_.out_c : 1;
    args.cs = roles_.out.c;
    args.xs = roles_.out.x[2] * walk_[2].out_step;
    args.channels = t.groups * roles_.out_c;
    args.count = count;
    // Sums of pairs in quads start at 0 and meet no product that underflows: none is -0.
    args.bias = pixels_ && kernels_.k_per_unit > 1 && !p_.bias ? nullptr : s.bias;
    args.add_cs = p_.add_strides.c;
    args.add_xs = p_.add_strides.x[2] * walk_[2].out_step;
    args.accumulate = p_.accumulate;
    args.relu = p_.relu;
    const auto at = [&](const conv::data_strides &st) { return size * row_at(st, t, f, d, h); };
    args.out = static_cast<char *>(roles_.output(*t.data)) + at(roles_.out);
    args.stream = streams_ && stores_lines(args);
    if (p_.add) args.add = static_cast<const char *>(t.data->add) + at(p_.add_strides);
    kernels_.store(args);
}

std::string narrow_data::describe() const {
    if (tasks_ == 0) return "nothing to sum";
    const auto n = [](dim v) { return std::to_string(v); };
    return "tile " + n(tile_[0]) + "x" + n(tile_[1]) + "x" + n(tile_[2])
           + (quads_         ? ", vectors of quads, "
               : pixels_     ? ", vectors of channels, "
               : d_rows_ > 0 ? ", vectors along positions, rows of taps together, "
                             : ", vectors along positions, ")
           + n(groups_) + " groups a task, chunk " + n(k_chunk_) + " of " + n(roles_.in_c)
           + ", tasks " + n(tasks_);
}

}  // namespace convgrad::cpu
