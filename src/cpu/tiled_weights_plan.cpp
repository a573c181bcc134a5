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

// A cut for many threads may take this much of one thread's time more than the coarsest.
constexpr double dearest = 1.15;
constexpr dim tile_target = 384 << 10;  // both packed operands of a tile
constexpr dim partials_most = 6 << 20;  // all parts together, unless one alone is larger
constexpr dim block_channels = 512;     // at most

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
    choose_cut();
    settle_tile();
    if (exact != nullptr) exact_.reset(new tiled_weights(*this, *exact));
    // A smaller workspace: fewer parts, narrower blocks, smaller tiles.
    while (parts_ > 1
           && static_cast<std::size_t>(4 * parts_ * partial_floats()) + scratch_bytes()
                  > workspace_limit)
        --parts_;
    dim target = tile_target;
    while (static_cast<std::size_t>(4 * parts_ * partial_floats()) + scratch_bytes()
           > workspace_limit) {
        if (target <= 4096 && rows_.block <= kernels_.lanes && columns_.block <= panel_width())
            break;
        rows_.block = std::max<dim>(kernels_.lanes, round_up_to(rows_.block / 2, kernels_.lanes));
        columns_.block = std::max(panel_width(), round_up_to(columns_.block / 2, panel_width()));
        rows_.blocks = div_up(rows_.channels, rows_.block);
        columns_.blocks = div_up(columns_.channels, columns_.block);
        choose_tile(target = std::max<dim>(target / 2, 4096));
        settle_tile();
        if (exact != nullptr) exact_.reset(new tiled_weights(*this, *exact));
    }
    tasks_ = count_tasks();
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

/// One way to cut, and what it is worth.
struct tiled_weights::cut {
    dim row_blocks, column_blocks, parts, target;
    int vectors;
    double share = -1, seconds = 0;
    double most_seconds = 0;  // of any cut; 0: not known yet
};

void tiled_weights::set_cut(const cut &c) {
    const auto split = [](side &s, dim blocks, dim multiple) {
        s.block = round_up_to(div_up(s.channels, blocks), multiple);
        s.blocks = div_up(s.channels, s.block);
    };
    vectors_ = c.vectors;
    split(rows_, c.row_blocks, kernels_.lanes);
    split(columns_, c.column_blocks, panel_width());
    parts_ = c.parts;
    choose_tile(c.target);
}

/// Tiles that keep both packed operands within `bytes`; whole rows first, then planes.
void tiled_weights::choose_tile(dim bytes) {
    // A pair of positions takes 4 bytes in dot2 and amx, per part.
    const dim each = kernels_.format == operand_format::fma ? 4 : 2 * kernels_.parts;
    cpu::choose_tile(
        walk_, std::max<dim>(8, bytes / (each * (rows_.block + columns_.block))), tile_);
    for (int a = 0; a < 3; ++a) tiles_[a] = div_up(walk_[a].longest, tile_[a]);
    tiles_all_ = p_.mb * tiles_[0] * tiles_[1] * tiles_[2];
}

/// The largest task in terms of the mean: remainders of blocks, of tiles, and of tiles per part.
double tiled_weights::skew() const {
    const auto ratio = [](dim a, dim b) { return static_cast<double>(a) / static_cast<double>(b); };
    double tiles = 1;
    for (int a = 0; a < 3; ++a) tiles *= ratio(tile_[a] * tiles_[a], walk_[a].longest);
    const dim most = div_up(tiles_all_, parts_);
    return ratio(rows_.blocks * rows_.block, rows_.channels) * ratio(most * parts_, tiles_all_)
           * ratio(columns_.blocks * columns_.block, columns_.channels)
           * (1 + (tiles - 1) / static_cast<double>(most));
}

/// Rough seconds of one thread.
double tiled_weights::cut_seconds() const {
    constexpr double read_bytes = 20e9, sum_bytes = 20e9, c_bytes = 100e9, start = 0.3e-6;
    const double pack_bytes = kernels_.parts > 1 ? 6e9 : 16e9;  // splitting costs more than copying
    const auto number = [](auto v) { return static_cast<double>(v); };
    double dst = number(p_.mb * p_.groups), src = dst;
    for (int a = 0; a < 3; ++a) {
        dst *= number(walk_[a].longest);
        src *= number(walk_[a].in_length)
               * (number(tile_[a] - 1) + number(walk_[a].phases[0].taps.size())) / number(tile_[a]);
    }
    const auto copied = [&](const side &s) {
        return (s.is_src ? src : dst) * number(padded(s, s.channels))
               * (1 / read_bytes + (s.as_stored ? 0 : 1 / pack_bytes));
    };
    const double copies =
        number(size_of(p_.type))
        * (copied(rows_) * number(columns_.blocks) + copied(columns_) * number(rows_.blocks));
    const double floats = number(taps_.kept.size())
                          * number(p_.groups * padded(rows_, rows_.channels))
                          * number(padded(columns_, columns_.channels));
    double steps = number(rows_.block * columns_.block) / kernels_.lanes;
    if (!amx()) {
        const dim rows = std::min(rows_.block, rows_.channels);
        const dim pieces = div_up(rows, kernels_.max_m[vectors_]);
        steps = number(pieces * div_up(columns_.block, panel_width()))
                * step_cost(div_up(rows, pieces), vectors_);
    }
    const double multiply = dst * number(taps_.kept.size()) * number(rows_.blocks * columns_.blocks)
                            * steps * kernels_.lanes / nominal_speed(kernels_);
    return multiply + copies + number(parts_ - 1) * 8 * floats / sum_bytes
           + number(tiles_all_) * 8 * floats / c_bytes
           + start * number(p_.groups * tiles_all_ * rows_.blocks * columns_.blocks);
}

/// Looks through blocks, tiles and parts for a better cut than `best`, with at most `most_split`
/// times the blocks that cache sizes ask for along each side.
void tiled_weights::try_cuts(cut &best, int threads, int vectors, dim most_split) {
    vectors_ = vectors;
    const dim bytes = 4 * p_.groups * static_cast<dim>(taps_.kept.size())
                      * padded(rows_, rows_.channels) * padded(columns_, columns_.channels);
    const dim most_parts = std::max<dim>(1, partials_most / bytes);
    const dim least_row = div_up(rows_.channels, block_channels);
    const dim least_column = div_up(columns_.channels, block_channels);
    const auto within = [&](dim least, dim blocks, dim channels, dim smallest) {
        return blocks == least || (blocks <= least * most_split && channels >= blocks * smallest);
    };
    for (dim row = least_row; within(least_row, row, rows_.channels, 2 * kernels_.lanes); row *= 2)
        for (dim column = least_column;
             within(least_column, column, columns_.channels, panel_width()); column *= 2)
            for (dim target : {tile_target, tile_target / 3}) {
                cut c{row, column, 1, target, vectors};
                set_cut(c);
                const dim blocks = count_tasks(), most = std::min(most_parts, tiles_all_);
                for (int rounds = 0; rounds <= 5; ++rounds) {
                    c.parts = rounds == 0   ? 1
                              : rounds == 5 ? most
                                            : rounds * most_cut_threads / blocks;
                    if (c.parts < 1 || c.parts > most) continue;
                    parts_ = c.parts;
                    c.share = std::min(fair_enough, fair_share(count_tasks(), skew(), threads));
                    c.seconds = cut_seconds();
                    if (best.most_seconds == 0) best.most_seconds = dearest * c.seconds;
                    c.most_seconds = best.most_seconds;
                    if (c.seconds > c.most_seconds) continue;
                    if (c.share > best.share || (c.share == best.share && c.seconds < best.seconds))
                        best = c;
                    if (threads == 1) return;
                }
            }
}

/// Whether diff_weights has filters in one piece (OIX, IOX) and small enough to be put together.
void tiled_weights::choose_writing() {
    const dim taps = p_.x[0].kernel * p_.x[1].kernel * p_.x[2].kernel;
    constexpr dim most = 512 << 10;
    taps_inside_ = taps_side_by_side(p_) && static_cast<dim>(taps_.kept.size()) == taps
                   && 4 * out_rows_ * panel_width() * taps <= most;
}

/// Blocks, tiles and parts: the cheapest that keep as many threads busy as the work is worth.
void tiled_weights::choose_cut() {
    const int threads = cut_threads(p_, kernels_), vectors = vectors_;
    cut best{1, 1, 1, tile_target, vectors};
    try_cuts(best, threads, vectors, 16);
    // Narrower panels divide more evenly. Blocks of taps would too, but each packs both operands.
    for (int v = 1; best.share < fair_enough && v < vectors; ++v)
        if (columns_.channels % (v * kernels_.lanes) == 0) try_cuts(best, threads, v, 16);
    set_cut(best);
    while (out_rows_ > 1 && out_slices() < 2 * dim{threads}) out_rows_ /= 2;
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
