// Choice of blocks for tiled_weights. Everything that decides the order of a sum (tiles, parts)
// comes from the problem and constants; the number of threads decides only how many workers there
// are.
#include <algorithm>
#include <utility>

#include "conv/simplify.hpp"
#include "cpu/tiled.hpp"
#include "cpu/tiled_weights.hpp"
#include "cpu/workspace_limit.hpp"

namespace convgrad::cpu {
namespace {

// A cut for many threads may take this much of one thread's time more than the coarsest.
constexpr double dearest = 1.06;
constexpr dim tile_target = 384 << 10;  // both packed operands of a tile
constexpr dim least_sum = 192;          // positions (dot2: pairs) of a tile, if there are as many
constexpr dim partials_most = 6 << 20;  // all parts together, unless one alone is larger
constexpr dim block_channels = 512;     // at most

/// Cheapest panel width for `rows` × `columns` of C, and its cost per position. Panels of a single
/// vector load as often as they multiply, and are packed in pieces twice as small: 15 to 36 %
/// slower than what their steps cost. A last panel that is narrower is packed and kept as a whole
/// one: 128 columns as 48 + 48 + 32 took 1.03 to 1.08 times as long as in panels of 32 or 64.
double best_panel(const kernel_set &k, dim rows, dim columns, int &vectors) {
    double best = 0;
    const dim all = div_up(columns, k.lanes);
    const int least = all > 1 ? std::min(2, k.max_vectors) : 1;
    for (int v = least; v <= k.max_vectors; ++v) {
        const dim pieces = div_up(rows, k.max_m[v]);
        const dim m = div_up(rows, pieces);
        const double whole = step_cost(k, m, v);
        const double rest = all % v == 0 ? 0 : (step_cost(k, m, all % v) + whole) / 2;
        const double cost =
            static_cast<double>(pieces) * (static_cast<double>(all / v) * whole + rest);
        if (v == least || cost < best) best = cost, vectors = v;
    }
    return best;
}

}  // namespace

tiled_weights::tiled_weights(const conv::problem &p, const kernel_set &kernels,
    const kernel_set *exact, int threads, std::size_t workspace_limit)
    : p_(conv::batch_as_axis(p)), kernels_(kernels) {
    for (std::size_t a = 0; a < 3; ++a) walk_[a] = walk_forward(p_.x[a]);
    taps_ = gradient_taps(p_, walk_);
    const bool empty = p.mb == 0 || p.groups == 0 || p.ic == 0 || p.oc == 0 || taps_.kept.empty();
    if (empty) return;  // write_zeros does what there is to do
    choose_orientation();
    choose_paths();
    choose_writing();
    choose_cut();
    settle_tile();
    if (exact != nullptr) exact_.reset(new tiled_weights(*this, *exact));
    // A smaller workspace: fewer parts, narrower blocks, smaller tiles.
    while (parts_ > 1 && partials_bytes() + scratch_bytes() > workspace_limit) --parts_;
    dim target = tile_target;
    while (partials_bytes() + scratch_bytes() > workspace_limit) {
        if (target <= 4096 && rows_.block <= kernels_.lanes && columns_.block <= panel_width())
            break;
        set_blocks(std::max<dim>(kernels_.lanes, round_up_to(rows_.block / 2, kernels_.lanes)),
            std::max(panel_width(), round_up_to(columns_.block / 2, panel_width())));
        rows_.unit = rows_.block;
        columns_.unit = columns_.block;
        choose_tile(target = std::max<dim>(target / 2, 4096));
        settle_tile();
        if (exact != nullptr) exact_.reset(new tiled_weights(*this, *exact));
    }
    check_workspace("weights gradient", partials_bytes() + scratch_bytes(), workspace_limit);
    bundle_units(std::min(threads, cut_threads(p_, kernels_)));
    settle_tile();
    if (exact != nullptr) exact_.reset(new tiled_weights(*this, *exact));
    if (partials_bytes() + scratch_bytes() > workspace_limit) {
        set_blocks(rows_.unit, columns_.unit);  // which fit
        settle_tile();
        if (exact != nullptr) exact_.reset(new tiled_weights(*this, *exact));
    }
    tasks_ = count_tasks();
    workers_ = static_cast<int>(std::min<dim>({std::max(threads, 1), tasks_,
        static_cast<dim>((workspace_limit - partials_bytes()) / scratch_bytes())}));
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
    const auto side_of = [this](bool src, bool rows) {
        const dim channels = src ? p_.ic : p_.oc;
        return side{channels, channels, 1, channels, src ? p_.src : p_.dst, src, rows, false};
    };
    int v_src_rows = 1, v_dst_rows = 1;
    if (kernels_.tiles()) {  // the operand that taps shift must be B, whose rows are positions
        rows_ = side_of(false, true);
        columns_ = side_of(true, false);
        vectors_ = static_cast<int>(std::min<dim>(2, div_up(p_.ic, 16)));
        c_rows_ = round_up_to(p_.oc, 16);
        return;
    }
    // Columns that do not lie side by side in diff_weights are transposed when they leave: cycles,
    // for each position, as panels are counted (1×1, 2,048 × 512 channels of 8 maps of 7×7: a tenth
    // of the time).
    constexpr double transposed = 2.5;
    dim summed = p_.mb;
    for (const axis_walk &axis : walk_) summed *= axis.longest;
    const auto leaving = [&](dim column_stride) {
        const bool straight = column_stride == 1 || taps_side_by_side(p_);
        return straight
                   ? 0
                   : transposed * static_cast<double>(p_.ic * p_.oc) / static_cast<double>(summed);
    };
    // Rows of planes that are read where they lie are not transposed on their way in.
    const double taps = static_cast<double>(taps_.kept.size());
    const auto saved = [&](const side &s) {
        constexpr double turned = 1.2;
        const bool direct = rows_on_planes(s, 2) && (!s.is_src || taps_.kept.size() == 1);
        return direct ? turned * static_cast<double>(s.channels) / taps : 0;
    };
    const double by_src = best_panel(kernels_, p_.ic, p_.oc, v_src_rows) + leaving(p_.weights.o)
                          - saved(side_of(true, true)),
                 by_dst = best_panel(kernels_, p_.oc, p_.ic, v_dst_rows) + leaving(p_.weights.i)
                          - saved(side_of(false, true));
    const bool src_rows = by_src <= by_dst;
    rows_ = side_of(src_rows, true);
    columns_ = side_of(!src_rows, false);
    vectors_ = src_rows ? v_src_rows : v_dst_rows;
    c_rows_ = rows_.channels;
}

/// Whether the rows of a block of C, `vectors` wide, can be read from planes as they lie, each a
/// stream of its own: that is so few that they stay in L1 beside each other, and not all at the
/// same place of a page.
bool tiled_weights::rows_on_planes(const side &s, int vectors) const {
    constexpr dim ways = 16;
    return kernels_.max_m[vectors] <= ways && s.strides.c != 1 && s.strides.x[2] == 1
           && (!s.is_src || walk_[2].in_step == 1)
           && !shares_sets(static_cast<dim>(size_of(p_.type)) * s.strides.c);
}

/// Operands that need no packing: f32 with channels side by side, whole vectors of columns, and
/// positions not so far apart that they compete for the same sets of L1; or rows of planes, of f32
/// or of pairs of bf16, whose values are only looked at.
void tiled_weights::choose_paths() {
    constexpr dim most_pitch = 1024;
    neighbours_ = kernels_.format == operand_format::dot2 && taps_.kept.size() == 1
                  && p_.src.x[2] * walk_[2].in_step == 1 && p_.dst.x[2] == 1
                  && !touches_padding(walk_[2], 0, walk_[2].longest);
    for (side *s : {&rows_, &columns_}) {
        const dim pitch = s->strides.x[2] * (s->is_src ? walk_[2].in_step : 1);
        const bool near = s->strides.c == 1 && 4 * pitch <= most_pitch
                          && (s->is_rows || s->channels % kernels_.lanes == 0);
        const bool rows = s->is_rows && rows_on_planes(*s, vectors_);
        s->as_stored = kernels_.format == operand_format::fma
                           ? p_.type == data_type::f32 && (near || rows)
                           : neighbours_ && p_.type == data_type::bf16 && rows;
    }
}

void tiled_weights::set_blocks(dim rows, dim columns) {
    rows_.block = rows;
    rows_.blocks = div_up(rows_.channels, rows);
    columns_.block = columns;
    columns_.blocks = div_up(columns_.channels, columns);
}

/// Channels of a side in `blocks` blocks of whole vectors, or whole panels.
dim tiled_weights::block_of(const side &s, dim blocks) const {
    return padded(s, div_up(s.channels, blocks));
}

/// Tiles that keep both packed operands within `bytes`; whole rows first, then planes.
void tiled_weights::choose_tile(dim bytes) {
    // A pair of positions takes 4 bytes in dot2 and amx, per part.
    const dim each = kernels_.format == operand_format::fma ? 4 : 2 * kernels_.parts;
    // With more positions sums are fetched less often, which is worth more than operands that stay
    // in the cache (f32, blocks of 512 × 512), unless each tap goes through them again (0.92 to
    // 0.99 with 3×3). Tiles of a matrix engine: not.
    const bool roomy = bytes >= tile_target, once = taps_.kept.size() == 1 && !kernels_.tiles();
    const dim enough = least_sum * kernels_.k_per_unit;
    const dim least = roomy && once ? enough : 8;
    // A position of dst meets so many of src that no other does; up to four are as good as counted.
    dim met = 1;
    for (const conv::axis &x : p_.x) met *= std::min(x.stride, x.kernel);
    const side &src = rows_.is_src ? rows_ : columns_, &dst = rows_.is_src ? columns_ : rows_;
    const dim position = each * (dst.block + src.block * std::max<dim>(1, met / 4));
    cpu::choose_tile(walk_, std::max(least, bytes / position), tile_);
    // Maps of few positions: as many of them.
    const dim map = walk_[1].longest * walk_[2].longest;
    if (roomy && 2 * map <= enough && tile_[1] * tile_[2] == map) {
        const dim maps = walk_[0].longest;
        tile_[0] = std::max(tile_[0], div_up(maps, std::max<dim>(1, maps * map / enough)));
    }
    for (int a = 0; a < 3; ++a) tiles_[a] = div_up(walk_[a].longest, tile_[a]);
    tiles_all_ = p_.mb * tiles_[0] * tiles_[1] * tiles_[2];
}

/// The largest task in terms of the mean: remainders of blocks, of tiles, and of tiles per part.
double tiled_weights::skew() const {
    const auto ratio = [](dim a, dim b) { return static_cast<double>(a) / static_cast<double>(b); };
    const auto blocks = [&](const side &s) {
        return s.blocks == 1 ? 1
                             : ratio(s.blocks * s.block, round_up_to(s.channels, kernels_.lanes));
    };
    double tiles = 1;
    for (int a = 0; a < 3; ++a) tiles *= ratio(tile_[a] * tiles_[a], walk_[a].longest);
    const dim most = div_up(tiles_all_, parts_), map_tiles = tiles_[0] * tiles_[1] * tiles_[2];
    const dim taps = static_cast<dim>(taps_.kept.size());
    return blocks(rows_) * blocks(columns_) * ratio(most * parts_, tiles_all_)
           * ratio(div_up(taps, tap_blocks_) * tap_blocks_, taps)
           * (most < map_tiles ? tiles : 1 + (tiles - 1) / static_cast<double>(most));
}

/// Rough seconds of one thread.
double tiled_weights::cut_seconds() const {
    constexpr double read_bytes = 20e9, sum_bytes = 20e9, start = 0.3e-6;
    constexpr dim c_kept = 512 << 10;  // of a task; more does not stay in L2 from tile to tile
    // Pairing and splitting cost more than copying.
    const double pack_bytes = kernels_.format == operand_format::fma ? 32e9 : 6e9;
    const auto number = [](auto v) { return static_cast<double>(v); };
    const dim c_task = 4 * static_cast<dim>(taps_.kept.size()) * rows_.block * columns_.block;
    const double c_bytes = c_task / tap_blocks_ <= c_kept ? 100e9 : 60e9;
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
        number(size_of(p_.type)) * number(tap_blocks_)
        * (copied(rows_) * number(columns_.blocks) + copied(columns_) * number(rows_.blocks));
    const double floats = number(taps_.kept.size())
                          * number(p_.groups * padded(rows_, rows_.channels))
                          * number(padded(columns_, columns_.channels));
    double steps = number(rows_.block * columns_.block) / kernels_.lanes;
    if (!kernels_.tiles()) {
        const dim rows = std::min(rows_.block, rows_.channels);
        const dim pieces = div_up(rows, kernels_.max_m[vectors_]);
        steps = number(pieces * div_up(columns_.block, panel_width()))
                * step_cost(kernels_, div_up(rows, pieces), vectors_);
    }
    const double multiply = dst * number(taps_.kept.size()) * number(rows_.blocks * columns_.blocks)
                            * steps * kernels_.lanes / nominal_speed(kernels_);
    return multiply + copies + number(parts_ - 1) * 8 * floats / sum_bytes
           + number(tiles_all_) * 8 * floats / c_bytes
           + start * number(p_.groups * tiles_all_ * rows_.blocks * columns_.blocks * tap_blocks_);
}

/// One way to cut, and what it is worth.
struct tiled_weights::cut {
    dim row_blocks = 1, column_blocks = 1;  // for one thread
    dim target = tile_target;
    dim row_units = 1, column_units = 1, parts = 1;
    dim taps = 1;  // blocks of them, each of which packs both operands
    int vectors = 1;
    double share = -1;
    double cost = 0;          // of one thread, and a little of what units cost many
    double most_seconds = 0;  // of one thread with any cut; 0: not known yet
};

/// The fewest units that `parts_` parts must have for a fair share, or as many as there can be.
double tiled_weights::share_of_units(cut &c, int threads) {
    const auto uneven = [this](const side &s, dim units) {
        const double ratio =
            static_cast<double>(block_of(s, units) * units) / static_cast<double>(s.channels);
        return ratio * ratio * ratio;
    };
    double best = 0, best_mean = 0;
    for (dim rows = c.row_blocks, columns = c.column_blocks;;) {
        set_blocks(block_of(rows_, rows), block_of(columns_, columns));
        double mean = 0;
        const double share =
            std::min(fair_enough, fair_share(count_tasks(), skew(), threads, &mean));
        if (share > best || (share == best && mean > best_mean))
            best = share, best_mean = mean, c.row_units = rows, c.column_units = columns;
        const bool more_rows = 2 * rows * 2 * kernels_.lanes <= rows_.channels;
        const bool more_columns = 2 * columns * panel_width() <= columns_.channels;
        if (best >= fair_enough) return best;
        if (!more_rows && !more_columns) break;
        // The longer side of a unit is halved, which packs the least, unless that leaves rests.
        const double by_rows = static_cast<double>(columns_.block) * uneven(rows_, 2 * rows),
                     by_columns = static_cast<double>(rows_.block) * uneven(columns_, 2 * columns);
        if (more_rows && (!more_columns || by_rows <= by_columns))
            rows *= 2;
        else
            columns *= 2;
    }
    for (tap_blocks_ = 2; best < fair_enough && tap_blocks_ <= most_tap_blocks();
         tap_blocks_ *= 2) {
        const double share = std::min(fair_enough, fair_share(count_tasks(), skew(), threads));
        if (share > best) best = share, c.taps = tap_blocks_;
    }
    tap_blocks_ = 1;
    return best;
}

/// Looks through tiles, parts and units for a better cut than `best`.
void tiled_weights::try_cuts(cut &best, int threads, int vectors) {
    vectors_ = vectors;
    const dim bytes = 4 * p_.groups * static_cast<dim>(taps_.kept.size())
                      * padded(rows_, rows_.channels) * padded(columns_, columns_.channels);
    const dim most_parts = std::max<dim>(1, partials_most / bytes);
    const dim rows = div_up(rows_.channels, block_channels);
    const dim columns = div_up(columns_.channels, block_channels);
    dim row_blocks = 0, column_blocks = 0;
    for (dim split : {1, 2, 4, 8}) {
        const dim last_rows = row_blocks, last_columns = column_blocks;
        row_blocks = std::min(rows * split, div_up(rows_.channels, 2 * kernels_.lanes));
        column_blocks = std::min(columns * split, div_up(columns_.channels, panel_width()));
        if (row_blocks == last_rows && column_blocks == last_columns) break;
        for (dim target : {tile_target, tile_target / 3}) {
            cut c{row_blocks, column_blocks, target};
            c.vectors = vectors;
            c.most_seconds = best.most_seconds;
            set_blocks(block_of(rows_, c.row_blocks), block_of(columns_, c.column_blocks));
            choose_tile(target);
            const dim most = std::min(most_parts, tiles_all_);
            for (dim step = 0, last = 0; step <= 40 && last < most; ++step) {
                c.parts = std::min(most, step < 8 ? step + 1 : last + div_up(last, 8));
                last = parts_ = c.parts;
                set_blocks(block_of(rows_, c.row_blocks), block_of(columns_, c.column_blocks));
                const double seconds = cut_seconds();
                if (best.most_seconds == 0) best.most_seconds = dearest * seconds;
                c.most_seconds = best.most_seconds;
                // Units do not cost less than blocks, and more parts cost more.
                const bool found = best.share >= fair_enough && 1.2 * seconds >= best.cost;
                if (found || seconds > c.most_seconds) break;
                c.taps = 1;
                c.share = share_of_units(c, threads);
                set_blocks(block_of(rows_, c.row_units), block_of(columns_, c.column_units));
                tap_blocks_ = c.taps;
                c.cost = seconds + cut_seconds() / 4;
                tap_blocks_ = 1;
                if (c.share > best.share || (c.share == best.share && c.cost < best.cost)) best = c;
                if (threads == 1) return;
                const bool whole =
                    c.row_units == c.row_blocks && c.column_units == c.column_blocks && c.taps == 1;
                if (c.share >= fair_enough && whole) break;  // more parts only cost more
            }
        }
    }
}

/// Blocks of one or more units each: the cheapest that keep `threads` threads busy. Where units are
/// too few for that, taps are shared out as well: each block of them packs both operands.
void tiled_weights::bundle_units(int threads) {
    struct {
        dim rows, columns, taps;
        double share = -1, seconds = 0;
    } best{rows_.unit, columns_.unit, 1};
    const auto consider = [&](dim rows, dim columns) {
        set_blocks(rows, columns);
        const double real_share = fair_share_on(count_tasks(), skew(), threads);
        const double share = std::min(fair_enough, real_share);
        const double seconds = cut_seconds() / real_share;
        if (share > best.share || (share == best.share && seconds < best.seconds))
            best = {rows, columns, tap_blocks_, share, seconds};
    };
    tap_blocks_ = 1;
    // Of blocks that are as many, the smallest are the most even.
    const auto next = [](const side &s, dim block) {
        const dim blocks = div_up(s.channels, block);
        do block += s.unit;
        while (blocks > 1 && div_up(s.channels, block) == blocks);
        return block;
    };
    for (dim rows = rows_.unit; rows < largest_.rows + rows_.unit; rows = next(rows_, rows))
        for (dim columns = columns_.unit; columns < largest_.columns + columns_.unit;
             columns = next(columns_, columns))
            consider(rows, columns);
    while (best.share < fair_enough && 2 * tap_blocks_ <= most_tap_blocks()) {
        tap_blocks_ *= 2;
        consider(largest_.rows, largest_.columns);
        consider(rows_.unit, columns_.unit);
    }
    set_blocks(best.rows, best.columns);
    tap_blocks_ = best.taps;
}

/// Whether diff_weights has filters in one piece (OIX, IOX) and small enough to be put together.
void tiled_weights::choose_writing() {
    const dim taps = p_.x[0].kernel * p_.x[1].kernel * p_.x[2].kernel;
    constexpr dim most = 512 << 10;
    taps_inside_ = taps_side_by_side(p_) && static_cast<dim>(taps_.kept.size()) == taps
                   && 4 * out_rows_ * panel_width() * taps <= most;
}

/// Tiles, parts and units: the cheapest that can keep as many threads busy as the work is worth.
void tiled_weights::choose_cut() {
    const int threads = cut_threads(p_, kernels_), vectors = vectors_;
    cut best;
    best.vectors = vectors;
    try_cuts(best, threads, vectors);
    // Narrower panels divide more evenly; those of a single vector are too slow.
    for (int v = vectors - 1; best.share < fair_enough && v > 1; --v)
        if (columns_.channels % (v * kernels_.lanes) == 0) try_cuts(best, threads, v);
    vectors_ = best.vectors;
    parts_ = best.parts;
    set_blocks(block_of(rows_, best.row_blocks), block_of(columns_, best.column_blocks));
    choose_tile(best.target);
    if (threads > 1) even_parts();
    largest_ = {rows_.block, columns_.block};
    rows_.unit = block_of(rows_, best.row_units);
    columns_.unit = block_of(columns_, best.column_units);
    set_blocks(rows_.unit, columns_.unit);
    while (out_rows_ > 1 && out_slices() < 2 * dim{threads}) out_rows_ /= 2;
}

/// A few parts or tiles more, where that makes the parts as many as halve often, which any usual
/// number of threads shares out evenly, and all of them equally long (15 parts on two threads:
/// 0.94; 2 parts of 17 tiles: 0.95).
void tiled_weights::even_parts() {
    const dim bytes = parts_ == 1 ? 0 : partials_bytes() / parts_;
    for (dim multiple : {8, 4, 2}) {
        const dim parts = round_up_to(parts_, multiple);
        if (6 * parts > 7 * parts_ || parts > tiles_all_ || parts * bytes > partials_most) continue;
        parts_ = parts;
        break;
    }
    constexpr dim many = 16;  // tiles of a part: one more or less does not count
    if (tiles_all_ % parts_ == 0 || tiles_all_ >= many * parts_) return;
    for (int a = 2; a >= 0; --a) {
        const dim length = walk_[a].longest, others = tiles_all_ / tiles_[a];
        for (dim tiles = tiles_[a] + 1; tiles_[a] > 1 && 4 * tiles <= 5 * tiles_[a] + 4; ++tiles) {
            const dim each = div_up(length, tiles);
            if (div_up(length, each) != tiles || others * tiles % parts_ != 0) continue;
            tile_[a] = each;
            tiles_[a] = tiles;
            tiles_all_ = others * tiles;
            return;
        }
    }
}

void tiled_weights::settle_tile() {
    for (int a = 0; a < 3; ++a) patch_[a] = make_patch(walk_[a], tile_[a], a == 2);
    phase_list taps = list_phases(walk_, patch_, p_.weights, p_.src);
    tap_patch_ = std::move(taps.patch);
    tap_input_ = std::move(taps.input);
    for (dim &offset : tap_input_) offset *= static_cast<dim>(size_of(p_.type));
    tap_rows_.clear();
    tap_columns_.clear();
    for (dim position : tap_patch_) {
        tap_rows_.push_back(position * 4 * padded(rows_, rows_.block));
        tap_columns_.push_back(position * 4 * panel_width());
    }
    if (!kernels_.tiles()) return;
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
           + n(rows_.block) + "x" + n(columns_.block)
           + (tap_blocks_ > 1 ? ", taps in " + n(tap_blocks_) : "") + ", parts " + n(parts_)
           + ", tasks " + n(tasks_);
}

}  // namespace convgrad::cpu
