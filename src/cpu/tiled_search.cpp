// The search for a layout of tiled_data. Sizes are in terms of a core's own cache: the packed
// weights of a block stay in L2 while tiles stream past them; a tile's patch and its C lie beside
// them.
//
// Nothing here may change the order of a sum: k_chunk_ is a constant of the kernel set, everything
// else only decides which elements are computed together.
#include <algorithm>
#include <cmath>
#include <utility>

#include "conv/simplify.hpp"
#include "cpu/cost_model.hpp"
#include "cpu/tiled.hpp"
#include "cpu/tiled_search.hpp"
#include "cpu/work_cut.hpp"
#include "cpu/workspace_limit.hpp"

namespace convgrad::cpu {
namespace {

/// Processors with tiles have 2 MiB of L2. Tiles are read as fast from L2 as from L1, so longer
/// sums at once save round trips of C. Larger patches (768 KiB) take 4 to 8 parts of a hundred more
/// time, and leave fewer tasks to sixteen threads. Vectors of 512 bits fetch the weights of longer
/// sums from L2 as fast as they multiply; with 256 bits shorter sums are 1.03 times as fast.
constexpr cache_targets targets_of(const kernel_set &kernels) {
    if (kernels.tiles()) return {1 << 20, 384 << 10, 4096};
    return {512 << 10, 384 << 10, kernels.lanes >= 16 ? 2048 : 1024};
}

constexpr dim weights_most = 4 << 20;    // beyond this they are packed anew for each tile and chunk
constexpr dim shared_most = 24 << 20;    // of all workers together
constexpr dim stage_target = 128 << 10;  // filters that are transposed before they are packed
constexpr dim most_tasks = dim{1} << 30;
// Bytes; beyond, rows of tiles compete for the same sets of L1, and those that vectors go through
// lie in more pages than lines.
constexpr dim most_pitch = 2048, most_apart = 4096;

constexpr dim most_stacked = 32;  // images of a tile

}  // namespace

tiled_search::tiled_search(const conv::problem &p, const kernel_set &kernels, bool stacked)
    : tiled_layout(stacked ? conv::batch_as_last_axis(p) : p, kernels),
      target_(targets_of(kernels)) {
    flat_ = kernels.tiles();
    stacked_ = stacked;
    for (std::size_t a = 0; a < 3; ++a)
        walk_[a] = roles_.forward ? walk_forward(p_.x[a]) : walk_backward(p_.x[a]);
    taps_ = count_taps(walk_);
}

tiled_search::tiled_search(const tiled_search &like, const kernel_set &kernels)
    : tiled_layout(like.p_, kernels), target_(targets_of(kernels)) {
    flat_ = like.flat_;
    stacked_ = like.stacked_;
    taps_ = like.taps_;
    for (int a = 0; a < 3; ++a) {
        walk_[a] = like.walk_[a];
        tile_[a] = like.tile_[a];
        unit_[a] = like.unit_[a];
    }
    unit_panels_ = like.unit_panels_;
    choose_chunks();
    vectors_ = static_cast<int>(like.panel_width() / kernels.lanes);
    panels_ = like.panels_;
    panels_per_block_ = like.panels_per_block_;
    images_per_task_ = like.images_per_task_;
    // The weights of a block are packed for one tile only: no use in keeping more than a chunk.
    keep_weights_ = false;
    roomy_ = like.roomy_;
    choose_paths();
    settle();
}

bool tiled_search::find(const kernel_set *exact, int threads, std::size_t workspace_limit) {
    if (p_.mb == 0 || p_.groups == 0 || roles_.in_c == 0 || roles_.out_c == 0 || taps_ == 0
        || count_positions(walk_) == 0)
        return true;  // fill_unreached does what there is to do
    least_seconds_ = least_seconds(p_, kernels_);
    learn_axes();
    choose_chunks();
    choose_panels();
    choose_paths();
    choose_blocks();
    settle_both(exact);
    while (least_workspace() > workspace_limit && shrink()) settle_both(exact);
    if (stacked_ && least_workspace() > workspace_limit) return false;
    check_workspace("convolution", least_workspace(), workspace_limit);
    for (int a = 0; a < 3; ++a) unit_[a] = tile_[a];
    unit_panels_ = panels_per_block_;
    bundle_units(std::min(threads, cut_threads(p_, kernels_)));
    settle_both(exact);
    if (least_workspace() > workspace_limit) {  // units fit
        use_units();
        settle_both(exact);
    }
    choose_workers(threads, workspace_limit);
    if (!worth_sharing()) return true;
    share_weights_ = true;
    if (least_workspace() > workspace_limit) share_weights_ = false;
    choose_workers(threads, workspace_limit);
    return true;
}

/// Of a single worker.
std::size_t tiled_search::least_workspace() const {
    return shared_bytes() + scratch_bytes();
}

void tiled_search::choose_workers(int threads, std::size_t workspace_limit) {
    const std::size_t rest = workspace_limit - shared_bytes();
    workers_ = static_cast<int>(
        std::min<dim>({std::max(threads, 1), tasks_, static_cast<dim>(rest / scratch_bytes())}));
}

/// Whether workers would pack the same weights, for longer than it takes to wait for each other.
bool tiled_search::worth_sharing() const {
    constexpr double pack_bytes = 5e9, wait = 5e-6;
    if (share_weights_ || !keep_weights_ || workers_ == 1 || shared_pieces() < workers_)
        return false;
    const double weights = static_cast<double>(taps_ * roles_.in_c * panels_per_block_)
                           * static_cast<double>(panel_width())
                           * static_cast<double>(size_of(p_.type));
    const double blocks = static_cast<double>(p_.groups * blocks_) / workers_;
    return (std::ceil(blocks) - blocks) * weights / pack_bytes > wait;
}

void tiled_search::settle_both(const kernel_set *exact) {
    settle();
    if (exact == nullptr) return;
    exact_layout_ = std::make_unique<tiled_layout>(tiled_search(*this, *exact));
    exact_bytes_ = exact_layout_->scratch_bytes();
}

void tiled_search::choose_chunks() {
    const dim channel_bytes = dim{kernels_.unit_bytes} * kernels_.parts / kernels_.k_per_unit;
    set_chunks(round_up_to(target_.patch_row / channel_bytes, kernels_.k_per_unit));
}

/// Chunks of nearly equal length, at most `channels` (whole units) long.
void tiled_search::set_chunks(dim channels) {
    k_chunk_ = round_up_to(div_up(roles_.in_c, div_up(roles_.in_c, channels)), kernels_.k_per_unit);
    chunks_ = div_up(roles_.in_c, k_chunk_);
}

/// What need not be packed or buffered.
void tiled_search::choose_paths() {
    const bool fma = kernels_.format == operand_format::fma;
    const dim size = static_cast<dim>(size_of(p_.type));
    pixels_ = (stacked_ || roles_.in.c == 1) && !kernels_.tiles();
    const bool units_as_stored =
        fma ? p_.type == data_type::f32 : roles_.in_c % kernels_.k_per_unit == 0;
    const dim apart = size * roles_.in.x[2] * walk_[2].in_step;
    read_input_ = pixels_ && !stacked_ && !flat_ && units_as_stored && reads_apart(apart);
    if (kernels_.tiles()) read_input_ = reads_tiles();
    // An accumulated output must not be touched before it is certain that this path finishes the
    // tile.
    // Stacked panels of one vector: blocks of several positions are worth more, through a buffer.
    const bool merges = stacked_ && vectors_ == 1;
    write_output_ = !flat_ && !merges && roles_.out.c == 1 && !p_.bias && !p_.add && !p_.relu
                    && (fma ? p_.type == data_type::f32 && (chunks_ == 1 || !p_.accumulate)
                            : !kernels_.tiles() && !p_.accumulate);
}

/// Whether positions so many bytes apart are read where they lie: a few at a time, if those are
/// enough for the kernels.
bool tiled_search::reads_apart(dim bytes) {
    constexpr double enough = 1.05;
    if (bytes > most_apart) return false;
    const dim most = kernels_.max_m[vectors_];
    direct_rows_ = std::min(most, rows_held(bytes));
    const auto each = [&](dim rows) {
        return step_cost(kernels_, rows, dim{vectors_}) / static_cast<double>(rows);
    };
    return each(direct_rows_) <= enough * each(most);
}

/// Whether most tiles pack what they read: tiles are whole rows where that is possible, so that
/// padding beside a row is in all of them.
bool tiled_search::packs_input() const {
    return !read_input_ || touches_padding(walk_[2], 0, walk_[2].longest);
}

/// Rows of tiles in the input itself: a pointwise layer whose channels fill them as they are.
bool tiled_search::reads_tiles() const {
    const bool pointwise = taps_ == 1 && chunks_ == 1 && walk_[2].in_step == 1
                           && walk_[0].longest == 1 && walk_[1].longest == 1
                           && !touches_padding(walk_[2], 0, walk_[2].longest);
    return pointwise && kernels_.parts == 1 && roles_.in.c == 1
           && roles_.in_c % kernels_.k_per_unit == 0
           && static_cast<dim>(size_of(p_.type)) * roles_.in.x[2] <= most_pitch;
}

/// Picks the panel width whose blocks cover rows × channels with the least work.
void tiled_search::choose_panels() {
    const dim columns = div_up(roles_.out_c, kernels_.lanes);
    const dim row = std::min<dim>(walk_[2].longest, 1 << 20);
    double best = 0;
    for (int v = 1; v <= kernels_.max_vectors; ++v) {
        const dim pieces = flat_ ? 1 : div_up(row, kernels_.max_m[v]);
        const dim m = flat_ ? 1 : div_up(row, pieces);
        const double full = static_cast<double>(columns / v) * step_cost(kernels_, m, v);
        const double rest = columns % v == 0 ? 0 : step_cost(kernels_, m, columns % v);
        const double cost = static_cast<double>(pieces) * (full + rest);
        if (v == 1 || cost < best) best = cost, vectors_ = v;
    }
    if (flat_) vectors_ = static_cast<int>(std::min<dim>(columns, kernels_.max_vectors));
    panels_ = div_up(roles_.out_c, panel_width());
}

/// What every try of a cut needs of an axis.
void tiled_search::learn_axes() {
    for (int a = 0; a < 3; ++a) {
        dim low = 0, high = 0, taps = 0;
        double all = 0, inside = 0;
        for (const axis_phase &f : walk_[a].phases) {
            for (const axis_tap &tap : f.taps) {
                low = taps == 0 ? tap.off : std::min(low, tap.off);
                high = taps == 0 ? tap.off : std::max(high, tap.off);
                ++taps;
            }
            all += static_cast<double>(f.count) * static_cast<double>(f.taps.size());
            inside += inside_pairs(walk_[a], f, 0, f.count);
        }
        axes_[a] = {taps, high - low + 1, all / inside};
    }
}

/// Input elements that a tile reads along an axis.
dim tiled_search::touched(int a) const {
    return std::min(tile_[a] * axes_[a].taps, (tile_[a] - 1) * walk_[a].in_step + axes_[a].reach);
}

/// Rough seconds of one thread for everything that depends on tiles and blocks.
double tiled_search::cut_seconds() const {
    const double pack_bytes = kernels_.parts > 1 ? 10e9 : 16e9;
    constexpr double read_bytes = 10e9, start = 0.3e-6;
    const dim block_bytes = panels_per_block_ * panel_bytes(units(roles_.in_c));
    const double weights_bytes = block_bytes <= target_.weights ? 100e9 : 25e9;
    const auto tasks = static_cast<double>(count_tasks());
    double inputs = 1;
    for (int a = 0; a < 3; ++a) inputs *= static_cast<double>(touched(a));
    dim rows = tile_[1] * tile_[2];
    if (flat_) rows = round_up_to((tile_[1] - 1) * touched(2) + tile_[2], 32);
    const dim columns =
        std::min(panels_per_block_ * panel_width(), round_up_to(roles_.out_c, kernels_.lanes));
    // Multiply-adds, and what a block of C costs beside them.
    double step = 1;
    if (!flat_) {
        const dim row = std::min<dim>(tile_[2], 1 << 20),
                  pieces = div_up(row, kernels_.max_m[vectors_]);
        step = static_cast<double>(pieces) * step_cost(kernels_, div_up(row, pieces), vectors_)
               / static_cast<double>(row * vectors_);
    }
    const double weights = static_cast<double>(taps_ * roles_.in_c) * static_cast<double>(columns);
    const auto size = static_cast<double>(size_of(p_.type));
    return tasks
           * (start
               + static_cast<double>(tile_[0] * rows) * step * weights / nominal_speed(kernels_)
               + inputs * static_cast<double>(roles_.in_c) * size
                     * (1 / read_bytes + (packs_input() ? 1 / pack_bytes : 0))
               + (keep_weights_ ? weights * static_cast<double>(kernels_.column_bytes)
                                      / kernels_.k_per_unit / weights_bytes
                                : weights * size / pack_bytes));
}

dim tiled_search::count_tasks() const {
    return p_.groups * div_up(panels_, panels_per_block_) * p_.mb * tiles_[0] * tiles_[1]
           * tiles_[2];
}

void tiled_search::choose_blocks() {
    const dim one_panel = panel_bytes(units(roles_.in_c));
    // C of several chunks must leave room for a decent tile.
    dim most_panels = std::min(panels_, std::max<dim>(1, 512 / panel_width()));
    keep_weights_ = one_panel <= weights_most;
    // Vectors go through a tile with one panel of one chunk: weights of a wide block may come from
    // further away, once for a tile, where that saves packing its patch for several blocks.
    const bool wide = !kernels_.tiles() && keep_weights_ && chunks_ > 1;
    const dim held = wide ? panel_bytes(units(k_chunk_)) : one_panel;
    // Packed once for all workers, a block may be wider still, if that leaves tasks for many: of
    // stacked images there is one for each position. Where those are few, blocks of one chunk are
    // put together for as many threads as there are.
    const bool few_stacked = stacked_ && walk_[0].longest * walk_[1].longest < most_cut_threads;
    const bool packed_once = !kernels_.tiles() && keep_weights_ && packs_input()
                             && p_.groups * panels_ * one_panel <= shared_most;
    const bool shared = packed_once && !few_stacked;
    if (wide && !shared) most_panels = std::clamp<dim>(weights_most / one_panel, 1, most_panels);
    const auto evenly = [&](dim panels) {
        return div_up(panels_,
            div_up(panels_, std::clamp<dim>(panels, 1, chunks_ == 1 ? panels_ : most_panels)));
    };
    const dim near = evenly(target_.weights / std::max<dim>(held, 1));
    panels_per_block_ = shared ? evenly(panels_) : near;
    near_panels_ = few_stacked ? near : panels_;
    if (kernels_.tiles() && panels_per_block_ < most_panels) consider_streaming(most_panels);
    if (kernels_.tiles()) read_input_ = reads_tiles();
    most_panels_ = packed_once && few_stacked && chunks_ == 1 ? panels_ : panels_per_block_;
    choose_units(tile_positions());
}

/// As many positions as the caches ask for, given chunks and panels.
dim tiled_search::tile_positions() const {
    const dim phases = count_phases(walk_);
    const dim patch_bytes_each = units(k_chunk_) * kernels_.unit_bytes * kernels_.parts;
    // Sums of several chunks wait for the next one, in the output where they can.
    const dim waiting = chunks_ == 1 || write_output_ ? 1 : phases * panels_per_block_;
    const dim c_bytes_each = 4 * panel_width() * waiting;
    return std::max<dim>(16, target_.tile / (patch_bytes_each + c_bytes_each));
}

/// Of a tile: of stacked images a few, as their maps overlap.
dim tiled_search::longest_row() const {
    const dim all = walk_[2].longest;
    return stacked_ ? div_up(all, div_up(all, most_stacked)) : all;
}

/// The patch of a tile is packed once per block of output channels. Where weights are large, a
/// block is narrow and packing costs as much as the products: then short chunks with the weights of
/// all output channels, packed anew for each tile, may cost less.
void tiled_search::consider_streaming(dim panels) {
    const dim kept_panels = panels_per_block_, kept_chunk = k_chunk_;
    const bool kept = keep_weights_;
    const auto inputs = static_cast<double>(
        p_.mb * roles_.in_c * walk_[0].in_length * walk_[1].in_length * walk_[2].in_length);
    constexpr double weight_cost = 1.75;  // of packing a weight, in terms of an input
    const double kept_cost = inputs * static_cast<double>(div_up(panels_, kept_panels));
    const dim fits = target_.weights / (panels * panel_bytes(1)) * kernels_.k_per_unit;
    if (fits < kernels_.k_per_unit) return;
    panels_per_block_ = div_up(panels_, div_up(panels_, panels));
    set_chunks(std::min(fits, k_chunk_));
    keep_weights_ = false;
    const dim tiles = p_.mb * div_up(count_positions(walk_), tile_positions());
    const auto weights = static_cast<double>(taps_ * roles_.in_c * roles_.out_c);
    const double cost = inputs * static_cast<double>(div_up(panels_, panels_per_block_))
                        + weight_cost * weights * static_cast<double>(tiles);
    if (cost < kept_cost) return;
    panels_per_block_ = kept_panels;
    keep_weights_ = kept;
    set_chunks(kept_chunk);
}

void tiled_search::choose_tile(dim positions) {
    dim tile[3];
    cpu::choose_tile(walk_, positions, tile, longest_row());
    set_tile(tile);
}

void tiled_search::set_tile(const dim (&tile)[3]) {
    for (int a = 0; a < 3; ++a) {
        tile_[a] = tile[a];
        tiles_[a] = div_up(walk_[a].longest, tile[a]);
    }
}

/// Makes scratch smaller at the cost of speed; false if nothing is left to give.
bool tiled_search::shrink() {
    if (roomy_) {
        roomy_ = false;
        return true;
    }
    if (panels_per_block_ > 1) {
        panels_per_block_ = div_up(panels_per_block_, 2);
        return true;
    }
    if (const dim positions = tile_[0] * tile_[1] * tile_[2]; positions > 16) {
        choose_tile(positions / 2);
        return true;
    }
    if (keep_weights_ && chunks_ > 1) {
        keep_weights_ = false;
        return true;
    }
    if (vectors_ > 1) {
        vectors_ = vectors_ / 2;
        panels_ = div_up(roles_.out_c, panel_width());
        return true;
    }
    if (const dim positions = tile_[0] * tile_[1] * tile_[2]; positions > 1) {
        choose_tile(positions / 2);
        return true;
    }
    return false;
}

/// Everything that follows from the choices.
void tiled_search::settle() {
    patch_positions_ = 1;
    for (int a = 0; a < 3; ++a) {
        patch_[a] = make_patch(walk_[a], tile_[a], a == 2);
        patch_positions_ *= patch_[a].length;
        tiles_[a] = div_up(walk_[a].longest, tile_[a]);
    }
    if (pixels_) {
        position_bytes_ = round_up_to(4 * units(k_chunk_), 64);
        if (position_bytes_ % 1024 == 0)
            position_bytes_ += 64;  // neighbours in different sets of L1
        unit_step_ = 4;
    } else {
        position_bytes_ = kernels_.unit_bytes;
        unit_step_ = patch_positions_ * kernels_.unit_bytes * kernels_.parts;
    }
    const input_range met = patch_range(walk_[0], patch_[0]);
    stage_rows_ =
        stacked_ && roles_.in.c != 1 ? std::min(walk_[0].in_length, met.last - met.first) : 0;
    row_pitch_ = flat_ ? patch_[2].row : tile_[2];
    plane_pitch_ = (tile_[1] - 1) * row_pitch_ + tile_[2];
    if (flat_) plane_pitch_ = round_up_to(plane_pitch_, 16);
    rows_ = tile_[0] * plane_pitch_;

    list_taps();
    share_weights_ = keep_weights_ && panels_per_block_ * panel_bytes(kept_units()) > weights_most;
    choose_staging();
    choose_rows();
    blocks_ = div_up(panels_, panels_per_block_);
    const dim per_image = p_.groups * blocks_ * tiles_[0] * tiles_[1] * tiles_[2];
    images_per_task_ = std::max<dim>(1, div_up(per_image * p_.mb, most_tasks));
    tasks_ = per_image * div_up(p_.mb, images_per_task_);
}

/// How many positions of all panels fit into a part of L1, if multiply_rows can take this layer.
void tiled_search::choose_rows() {
    row_block_ = 0;
    const bool pointwise = taps_ == 1 && chunks_ == 1 && taps_of_.phases.size() == 1
                           && walk_[0].longest == 1 && walk_[1].longest == 1;
    const bool tiles = kernels_.tiles();
    if (!pointwise || roles_.out.c != 1 || write_output_) return;
    if (!tiles && panels_per_block_ == 1) return;
    // Beside padding, infinite weights go to multiply_careful, which needs room for a whole tile.
    if (touches_padding(walk_[2], 0, walk_[2].longest)) return;
    // Of tiles two panels, a pair of lines of 16-bit results; not fewer positions: what tiles store
    // cannot be read before it is in the cache (8 KiB of C: 7 parts of a hundred slower).
    constexpr dim bytes = 32 << 10;
    row_panels_ = tiles ? std::min<dim>(2, panels_per_block_) : panels_per_block_;
    const dim fits = bytes / (4 * row_panels_ * panel_width());
    row_block_ = std::max<dim>(32, fits / 32 * 32);
}

void tiled_search::choose_staging() {
    staged_ = stage_bytes_ = 0;
    const dim filter = filter_size(), size = static_cast<dim>(size_of(p_.type));
    if (!taps_side_by_side(p_)) return;
    // Vectors transpose filters as they pack them, unless there is little to transpose.
    if (!kernels_.tiles() && filter >= 4) return;
    const dim each = size * filter * panel_width();
    const dim fits = std::max(patch_bytes(), roomy_ ? stage_target : 0) / each;
    staged_ = std::min<dim>(fits, 64) / kernels_.k_per_unit * kernels_.k_per_unit;
    stage_bytes_ = round_up_to(staged_ * each, 64);
    tap_staged_.clear();
    const dim pitch = roles_.weights_in == filter ? panel_width() : staged_;
    for (dim tap : taps_of_.weights) tap_staged_.push_back(tap * pitch);
}

tiled_layouts find_tiled_layouts(const conv::problem &p, const kernel_set &kernels,
    const kernel_set *exact, int threads, std::size_t workspace_limit) {
    if (worth_stacking(p, kernels)) {
        tiled_search stacked(p, kernels, true);
        if (stacked.find(exact, threads, workspace_limit)) return stacked.result();
    }
    tiled_search search(p, kernels, false);
    static_cast<void>(search.find(exact, threads, workspace_limit));
    return search.result();
}

}  // namespace convgrad::cpu
