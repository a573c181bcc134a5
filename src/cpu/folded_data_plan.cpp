// Choice of blocks for folded_data. Nothing here changes the order of a sum.
#include <algorithm>

#include "cpu/fits.hpp"
#include "cpu/folded_data.hpp"
#include "cpu/tiled.hpp"
#include "cpu/workspace_limit.hpp"

namespace convgrad::cpu {
namespace {

constexpr dim patch_target = 192 << 10;  // of a task
constexpr dim c_target = 16 << 10;       // results of a piece of a row
constexpr dim most_tasks = dim{1} << 30;

/// Taps that meet the input nowhere are not listed; those between two others are needed here.
void fill_gaps(axis_walk &walk) {
    for (axis_phase &f : walk.phases) {
        std::vector<axis_tap> all;
        for (const axis_tap &tap : f.taps) {
            if (!all.empty()) {
                const axis_tap last = all.back();
                const dim gap = tap.off > last.off ? tap.off - last.off : last.off - tap.off;
                for (dim i = 1; i < gap; ++i)
                    all.push_back({last.k + (tap.k - last.k) / gap * i,
                        last.off + (tap.off - last.off) / gap * i});
            }
            all.push_back(tap);
        }
        f.taps = std::move(all);
    }
}

/// Tiles of the matrix engine for one group, where m of them share a block.
double block_cost(const data_roles &roles, dim taps, dim m) {
    const dim tiles = div_up(m * roles.out_c, 16) * div_up(m * roles.in_c * taps, 32);
    return static_cast<double>(tiles) / static_cast<double>(m);
}

/// The block that wastes least of a tile; the largest of several.
dim groups_of_block(const data_roles &roles, dim groups, dim taps) {
    dim best = 1;
    for (dim m = 2; m <= std::min<dim>(groups, 16); m *= 2)
        if (block_cost(roles, taps, m) <= block_cost(roles, taps, best)) best = m;
    return best;
}

}  // namespace

bool fits_folded(const conv::problem &p, std::string *why) {
    if (p.what == conv::pass::backward_weights) return refuse(why, "a weights gradient");
    if (p.x[2].dilation > 1 && p.x[2].kernel > 1) return refuse(why, "taps along a row lie apart");
    return true;
}

dim folded_taps(const conv::problem &p) {
    return div_up(p.x[2].kernel, p.what == conv::pass::forward ? 1 : p.x[2].stride);
}

dim folded_groups(const conv::problem &p, dim taps) {
    return groups_of_block(data_roles(p), p.groups, taps);
}

folded_data::folded_data(const conv::problem &p, const kernel_set &kernels, const kernel_set *exact,
    int threads, std::size_t workspace_limit)
    : p_(p), kernels_(kernels), roles_(p) {
    for (std::size_t a = 0; a < 3; ++a)
        walk_[a] = roles_.forward ? walk_forward(p.x[a]) : walk_backward(p.x[a]);
    fill_gaps(walk_[2]);
    if (p.mb == 0 || p.groups == 0 || roles_.in_c == 0 || roles_.out_c == 0
        || count_taps(walk_) == 0 || count_positions(walk_) == 0)
        return;  // fill_unreached does what there is to do
    choose_groups();
    choose_panels();
    choose(cut_threads(p, kernels));  // never the actual number: a tile decides what `exact` takes
    settle();
    if (exact != nullptr) exact_.reset(new folded_data(*this, *exact));
    while (scratch_bytes() > workspace_limit && shrink()) {
        settle();
        if (exact != nullptr) exact_.reset(new folded_data(*this, *exact));
    }
    check_workspace("convolution", scratch_bytes(), workspace_limit);
    workers_ = static_cast<int>(std::min<dim>(
        {std::max(threads, 1), tasks_, static_cast<dim>(workspace_limit / scratch_bytes())}));
}

folded_data::folded_data(const folded_data &like, const kernel_set &kernels)
    : p_(like.p_), kernels_(kernels), roles_(like.roles_), groups_(like.groups_) {
    for (int a = 0; a < 3; ++a) {
        walk_[a] = like.walk_[a];
        tile_[a] = like.tile_[a];
    }
    choose_panels();
    settle();
}

/// On the matrix engine a block of several groups wastes less of a tile than one group does.
void folded_data::choose_groups() {
    dim taps = 1;
    for (const axis_phase &f : walk_[2].phases)
        taps = std::max(taps, static_cast<dim>(f.taps.size()));
    groups_ = kernels_.tiles() ? groups_of_block(roles_, p_.groups, taps) : 1;
}

/// As wide as possible: sums are short, so that much of the time goes into writing results, and
/// those are written faster one after the other. Long sums of pairs gain more by tall blocks.
void folded_data::choose_panels() {
    constexpr dim long_sum = 128, tall = 2;  // products; vectors
    const dim columns = div_up(out_block(), kernels_.lanes);
    const bool is_long = kernels_.format == operand_format::dot2
                         && count_taps(walk_) * in_block() >= long_sum * count_phases(walk_);
    const dim widest = widest_vectors(kernels_), most = is_long ? std::min(widest, tall) : widest;
    vectors_ = static_cast<int>(div_up(columns, div_up(columns, most)));
    panels_ = div_up(out_block(), panel_width());
}

void folded_data::choose(int threads) {
    list_phases();
    const dim steps = walk_[0].in_step * walk_[1].in_step;
    dim each = in_block() * element_ * steps * walk_[2].in_step;
    if (kernels_.tiles()) {
        each = 0;
        for (const phase &f : phases_) each = std::max(each, 64 * kernels_.parts * f.units * steps);
    }
    dim positions = std::max<dim>(64, patch_target / each);
    const dim blocks = div_up(p_.groups, groups_) * p_.mb;
    const double products = static_cast<double>(count_taps(walk_)) * static_cast<double>(in_block())
                            * static_cast<double>(out_block());
    if (threads > 1)
        positions = std::max(static_cast<dim>(folded_least(products)),
            std::min(positions, div_up(count_positions(walk_) * blocks, 4 * dim{threads})));
    choose_tile(walk_, positions, tile_);
}

void folded_data::list_phases() {
    element_ = kernels_.format == operand_format::fma ? 4 : static_cast<dim>(size_of(p_.type));
    dim high = 0;
    low_ = 0;
    bool first = true;
    for (const axis_phase &f : walk_[2].phases)
        for (const axis_tap &tap : f.taps) {
            low_ = first ? tap.off : std::min(low_, tap.off);
            high = first ? tap.off : std::max(high, tap.off);
            first = false;
        }
    span_ = high - low_ + 1;
    phases_.clear();
    dim packed = 0;
    for (std::size_t d = 0; d < walk_[0].phases.size(); ++d)
        for (std::size_t h = 0; h < walk_[1].phases.size(); ++h) {
            dim patch = 0;
            for (const axis_phase &w : walk_[2].phases) {
                phase f{{&walk_[0].phases[d], &walk_[1].phases[h], &w}, {d, h},
                    std::min(w.taps.front().off, w.taps.back().off), 0, 0, 0, packed, patch};
                f.k = static_cast<dim>(w.taps.size()) * in_block();
                f.units = div_up(f.k, kernels_.k_per_unit);
                f.runs = static_cast<dim>(f.axis[0]->taps.size() * f.axis[1]->taps.size());
                packed += f.runs * f.units * panel_width() * kernels_.column_bytes;
                patch += f.units * kernels_.parts * round_up_to(tile_[2], 32) * 64;
                phases_.push_back(f);
            }
        }
}

void folded_data::settle() {
    list_phases();
    for (int a = 0; a < 2; ++a) patch_[a] = make_patch(walk_[a], tile_[a]);
    for (int a = 0; a < 3; ++a) tiles_[a] = div_up(walk_[a].longest, tile_[a]);
    row_bytes_ =
        round_up_to(((tile_[2] - 1) * walk_[2].in_step + span_) * in_block() * element_ + 64, 64);
    if (kernels_.tiles()) {
        row_bytes_ = 0;
        for (const phase &f : phases_)
            row_bytes_ = std::max(
                row_bytes_, f.patch + f.units * kernels_.parts * round_up_to(tile_[2], 32) * 64);
    }
    // Whole blocks of the kernel, or of what transposes the results.
    const dim most = std::max<dim>(32, c_target / (4 * panels_ * panel_width()));
    const dim whole = kernels_.tiles() || roles_.out.c != 1 ? 16 : kernels_.max_m[vectors_];
    piece_ = tile_[2];
    if (piece_ > most) piece_ = std::max<dim>(1, most / whole) * whole;
    group_blocks_ = div_up(p_.groups, groups_);
    const dim per_image = group_blocks_ * tiles_[0] * tiles_[1] * tiles_[2];
    images_per_task_ = std::max<dim>(1, div_up(per_image * p_.mb, most_tasks));
    tasks_ = per_image * div_up(p_.mb, images_per_task_);
    const bool fma = kernels_.format == operand_format::fma;
    read_input_ = fma && p_.type == data_type::f32 && roles_.in.x[2] == in_block()
                  && (roles_.in.c == 1 || in_block() == 1);
    write_output_ = roles_.out.c == 1 && !p_.bias && !p_.add && !p_.relu
                    && (fma ? p_.type == data_type::f32 : !kernels_.tiles() && !p_.accumulate);
}

bool folded_data::shrink() {
    if (const dim positions = tile_[0] * tile_[1] * tile_[2]; positions > 1) {
        choose_tile(walk_, positions / 2, tile_);
        return true;
    }
    if (vectors_ > 1) {
        vectors_ /= 2;
        panels_ = div_up(out_block(), panel_width());
        return true;
    }
    if (groups_ > 1) {
        groups_ /= 2;
        panels_ = div_up(out_block(), panel_width());
        return true;
    }
    return false;
}

dim folded_data::panel_vectors(dim panel, dim columns) const {
    return std::min<dim>(vectors_, div_up(columns - panel * panel_width(), kernels_.lanes));
}

dim folded_data::packed_bytes() const {
    const phase &f = phases_.back();
    return f.packed + f.runs * f.units * panel_width() * kernels_.column_bytes;
}

dim folded_data::gathered_bytes() const {
    dim most = 0;
    for (const phase &f : phases_) most = std::max(most, f.runs * f.k);
    return most * out_block() * static_cast<dim>(size_of(p_.type));
}

dim folded_data::patch_bytes() const {
    const dim rows = patch_[0].length * patch_[1].length;
    return round_up_to(std::max(rows * row_bytes_ + 64, gathered_bytes()), 64);
}

dim folded_data::c_floats() const {
    return panels_ * round_up_to(piece_, 32) * panel_width();
}

std::string folded_data::describe() const {
    if (tasks_ == 0) return "nothing to sum";
    const auto n = [](dim v) { return std::to_string(v); };
    dim k = 0;
    for (const phase &f : phases_) k = std::max(k, f.k);
    return "tile " + n(tile_[0]) + "x" + n(tile_[1]) + "x" + n(tile_[2]) + ", phases "
           + n(static_cast<dim>(phases_.size())) + ", taps of a row and channels folded to " + n(k)
           + ", " + n(groups_) + " groups a block, panel " + n(panel_width()) + ", tasks "
           + n(tasks_);
}

}  // namespace convgrad::cpu
