// Choice of blocks for tiled_weights. Everything that decides the order of a sum (tiles, parts)
// comes from the problem and constants; the number of threads decides only how many workers there
// are.
#include <algorithm>
#include <utility>

#include "cpu/tiled.hpp"
#include "cpu/tiled_weights.hpp"
#include "cpu/workspace_limit.hpp"

namespace convgrad::cpu {
namespace {

constexpr dim tile_target = 384 << 10;  // both packed operands of a tile
constexpr dim partials_most = 8 << 20;  // all parts together, unless one alone is larger
constexpr dim tasks_wanted = 32;
constexpr dim part_macs_least = 1 << 20;  // a part smaller than this is not worth its addition
constexpr dim block_channels = 512;

/// Cheapest panel width for `rows` × `columns` of C, and its cost per position.
double best_panel(const kernel_set &k, dim rows, dim columns, int &vectors) {
    double best = 0;
    const dim all = div_up(columns, k.lanes);
    for (int v = 1; v <= k.max_vectors; ++v) {
        const dim pieces = div_up(rows, k.max_m[v]);
        const dim m = div_up(rows, pieces);
        const double cost = static_cast<double>(pieces)
                            * (static_cast<double>(all / v) * step_cost(m, v)
                                + (all % v == 0 ? 0 : step_cost(m, all % v)));
        if (v == 1 || cost < best) best = cost, vectors = v;
    }
    return best;
}

}  // namespace

tiled_weights::tiled_weights(const conv::problem &p, const kernel_set &kernels,
    const kernel_set *exact, int threads, std::size_t workspace_limit)
    : p_(p), kernels_(kernels) {
    for (std::size_t a = 0; a < 3; ++a) walk_[a] = walk_forward(p.x[a]);
    taps_ = gradient_taps(p, walk_);
    const bool empty = p.mb == 0 || p.groups == 0 || p.ic == 0 || p.oc == 0 || taps_.kept.empty();
    if (empty) return;  // write_zeros does what there is to do
    choose_orientation();
    choose_paths();
    choose_writing();
    choose_blocks();
    dim target = tile_target;
    choose_tile(target);
    if (exact != nullptr) exact_.reset(new tiled_weights(*this, *exact));
    choose_parts(workspace_limit);
    // A smaller workspace: narrower blocks, then smaller tiles.
    while (static_cast<std::size_t>(4 * parts_ * partial_floats()) + scratch_bytes()
           > workspace_limit) {
        if (target <= 4096 && rows_.block <= kernels_.lanes && columns_.block <= panel_width())
            break;
        rows_.block = std::max<dim>(kernels_.lanes, round_up_to(rows_.block / 2, kernels_.lanes));
        columns_.block = std::max(panel_width(), round_up_to(columns_.block / 2, panel_width()));
        rows_.blocks = div_up(rows_.channels, rows_.block);
        columns_.blocks = div_up(columns_.channels, columns_.block);
        choose_tile(target = std::max<dim>(target / 2, 4096));
        if (exact != nullptr) exact_.reset(new tiled_weights(*this, *exact));
    }
    tasks_ = parts_ * p.groups * rows_.blocks * columns_.blocks;
    const std::size_t fixed = static_cast<std::size_t>(4 * parts_ * partial_floats());
    check_workspace("weights gradient", fixed + scratch_bytes(), workspace_limit);
    workers_ = static_cast<int>(std::min<dim>({std::max(threads, 1), tasks_,
        static_cast<dim>((workspace_limit - fixed) / scratch_bytes())}));
}

tiled_weights::tiled_weights(const tiled_weights &like, const kernel_set &kernels)
    : p_(like.p_), kernels_(kernels), rows_(like.rows_), columns_(like.columns_),
      c_rows_(like.c_rows_), taps_(like.taps_) {
    for (int a = 0; a < 3; ++a) {
        walk_[a] = like.walk_[a];
        tile_[a] = like.tile_[a];
        tiles_[a] = like.tiles_[a];
    }
    vectors_ = static_cast<int>(like.panel_width() / kernels.lanes);
    choose_paths();
    settle_tile();
}

/// Which operand is broadcast and which runs along vectors: whichever costs less.
void tiled_weights::choose_orientation() {
    int v_src_rows = 1, v_dst_rows = 1;
    if (amx()) {  // the operand that taps shift must be B, whose rows are positions
        rows_ = {p_.oc, p_.oc, 1, p_.dst, false, false};
        columns_ = {p_.ic, p_.ic, 1, p_.src, true, false};
        vectors_ = static_cast<int>(std::min<dim>(2, div_up(p_.ic, 16)));
        c_rows_ = round_up_to(p_.oc, 16);
        return;
    }
    const bool src_rows = best_panel(kernels_, p_.ic, p_.oc, v_src_rows)
                          <= best_panel(kernels_, p_.oc, p_.ic, v_dst_rows);
    const side src{p_.ic, p_.ic, 1, p_.src, true, false},
        dst{p_.oc, p_.oc, 1, p_.dst, false, false};
    rows_ = src_rows ? src : dst;
    columns_ = src_rows ? dst : src;
    vectors_ = src_rows ? v_src_rows : v_dst_rows;
    c_rows_ = rows_.channels;
}

/// Operands that need no packing: f32 with channels side by side, whole vectors of columns, and
/// positions not so far apart that they compete for the same sets of L1.
void tiled_weights::choose_paths() {
    constexpr dim most_pitch = 2048;
    for (side *s : {&rows_, &columns_}) {
        const dim pitch = s->strides.x[2] * (s->is_src ? walk_[2].in_step : 1);
        s->as_stored = kernels_.format == operand_format::fma && p_.type == data_type::f32
                       && s->strides.c == 1 && 4 * pitch <= most_pitch
                       && (s == &rows_ || s->channels % kernels_.lanes == 0);
    }
}

void tiled_weights::choose_blocks() {
    const auto cut = [](side &s, dim multiple) {
        s.blocks = div_up(s.channels, block_channels);
        s.block = round_up_to(div_up(s.channels, s.blocks), multiple);
        s.blocks = div_up(s.channels, s.block);
    };
    cut(rows_, kernels_.lanes);
    cut(columns_, panel_width());
}

/// Tiles that keep both packed operands within `bytes`; whole rows first, then planes.
void tiled_weights::choose_tile(dim bytes) {
    // A pair of positions takes 4 bytes in dot2 and amx, per part.
    const dim each = kernels_.format == operand_format::fma ? 4 : 2 * kernels_.parts;
    cpu::choose_tile(
        walk_, std::max<dim>(8, bytes / (each * (rows_.block + columns_.block))), tile_);
    for (int a = 0; a < 3; ++a) tiles_[a] = div_up(walk_[a].longest, tile_[a]);
    tiles_all_ = p_.mb * tiles_[0] * tiles_[1] * tiles_[2];
    settle_tile();
}

/// Parts of the reduction: as many as give enough tasks, if memory and work allow.
void tiled_weights::choose_parts(std::size_t workspace_limit) {
    const dim bytes = 4 * partial_floats();
    const dim blocks = p_.groups * rows_.blocks * columns_.blocks;
    const double work = conv::macs(p_) / static_cast<double>(part_macs_least);
    parts_ = div_up(tasks_wanted, blocks);
    parts_ = std::min(parts_, partials_most / std::max<dim>(bytes, 1));
    parts_ = std::min(parts_, static_cast<dim>(std::min(work, 1e6)));
    parts_ = std::clamp<dim>(parts_, 1, tiles_all_);
    while (
        parts_ > 1 && static_cast<std::size_t>(parts_ * bytes) + scratch_bytes() > workspace_limit)
        --parts_;
    // With too few parts, cut the gradient itself further.
    while (parts_ * p_.groups * rows_.blocks * columns_.blocks < tasks_wanted) {
        if (columns_.block > panel_width() && columns_.block >= rows_.block)
            columns_.block = round_up_to(columns_.block / 2, panel_width());
        else if (rows_.block > 4 * kernels_.lanes)
            rows_.block = round_up_to(rows_.block / 2, kernels_.lanes);
        else
            break;
        rows_.blocks = div_up(rows_.channels, rows_.block);
        columns_.blocks = div_up(columns_.channels, columns_.block);
    }
    settle_tile();
}

/// Whether diff_weights has filters in one piece (OIX, IOX) and small enough to be put together.
void tiled_weights::choose_writing() {
    const dim taps = p_.x[0].kernel * p_.x[1].kernel * p_.x[2].kernel;
    constexpr dim most = 512 << 10;
    taps_inside_ = taps_side_by_side(p_) && static_cast<dim>(taps_.kept.size()) == taps
                   && 4 * out_rows * panel_width() * taps <= most;
}

void tiled_weights::settle_tile() {
    for (int a = 0; a < 3; ++a) patch_[a] = make_patch(walk_[a], tile_[a], a == 2);
    phase_list taps = list_phases(walk_, patch_, p_.weights, p_.src);
    tap_patch_ = std::move(taps.patch);
    tap_input_ = std::move(taps.input);
    for (dim &offset : tap_input_) offset *= 4;
    tap_rows_.clear();
    tap_columns_.clear();
    for (dim position : tap_patch_) {
        tap_rows_.push_back(position * 4 * padded(rows_, rows_.block));
        tap_columns_.push_back(position * 4 * panel_width());
    }
    if (!amx()) return;
    // Whichever wastes fewer units.
    by_rows_ = true;
    const order rows = order_of(tile_);
    by_rows_ = false;
    const order columns = order_of(tile_);
    by_rows_ = rows.runs * rows.k < columns.runs * columns.k;
}

std::string tiled_weights::describe() const {
    if (tasks_ == 0) return "nothing to sum";
    const auto n = [](dim v) { return std::to_string(v); };
    return "tile " + n(tile_[0]) + "x" + n(tile_[1]) + "x" + n(tile_[2]) + ", vectors along "
           + (rows_.is_src ? "dst" : "src") + " channels, panel " + n(panel_width()) + ", block "
           + n(rows_.block) + "x" + n(columns_.block) + ", parts " + n(parts_) + ", tasks "
           + n(tasks_);
}

}  // namespace convgrad::cpu
