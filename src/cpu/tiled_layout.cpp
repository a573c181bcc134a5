// What follows from a layout of tiled_data: sizes, memory, words.
#include "cpu/tiled_layout.hpp"

#include <algorithm>

#include "cpu/tiled.hpp"

namespace convgrad::cpu {

dim tiled_layout::chunk_channels(dim chunk) const {
    return std::min(k_chunk_, roles_.in_c - chunk * k_chunk_);
}

dim tiled_layout::panel_vectors(dim panel) const {
    return std::min<dim>(vectors_, div_up(roles_.out_c - panel * panel_width(), kernels_.lanes));
}

dim tiled_layout::kept_units() const {
    return keep_weights_ ? units(k_chunk_) * (chunks_ - 1) + units(chunk_channels(chunks_ - 1))
                         : units(k_chunk_);
}

dim tiled_layout::c_floats() const {
    if (row_block_ > 0) return row_block_ * row_panels_ * panel_width();
    const dim kept =
        chunks_ == 1 ? 1 : static_cast<dim>(taps_of_.phases.size()) * panels_per_block_;
    return rows_ * kept * panel_width();
}

dim tiled_layout::patch_bytes() const {
    return std::max(packed_patch_bytes(), stage_bytes_);
}

dim tiled_layout::packed_patch_bytes() const {
    if (pixels_) return round_up_to(patch_positions_ * position_bytes_, 64);
    return cpu::patch_bytes(kernels_, units(k_chunk_), patch_positions_);
}

/// Columns of a panel's last vector that are missing.
dim tiled_layout::missing_columns(dim panel) const {
    return std::max<dim>(
        0, panel_vectors(panel) * kernels_.lanes - (roles_.out_c - panel * panel_width()));
}

bool tiled_layout::stores_itself(dim panel) const {
    const bool sums_there = p_.type == data_type::f32 && (chunks_ > 1 || p_.accumulate);
    return write_output_ && (missing_columns(panel) == 0 || !sums_there);
}

void tiled_layout::list_taps() {
    taps_of_ = list_phases(walk_, patch_, p_.weights, roles_.in);
    tap_patch_.clear();
    tap_input_.clear();
    for (dim position : taps_of_.patch) tap_patch_.push_back(position * position_bytes_);
    for (dim element : taps_of_.input)
        tap_input_.push_back(element * static_cast<dim>(size_of(p_.type)));
    const dim k_pitch = panel_width() * kernels_.column_bytes;
    for (int last = 0; last < 2; ++last) {
        const dim chunk_units = units(last == 0 ? k_chunk_ : chunk_channels(chunks_ - 1));
        tap_packed_[last].resize(static_cast<std::size_t>(taps_));
        for (dim tap = 0; tap < taps_; ++tap)
            tap_packed_[last][static_cast<std::size_t>(tap)] = tap * chunk_units * k_pitch;
    }
}

tiled_layout::worker_memory tiled_layout::lay_out(memory_walk &memory) const {
    worker_memory s{};
    if (!share_weights_)
        s.weights = memory.take_lines<char>(panels_per_block_ * panel_bytes(kept_units()));
    s.patch = memory.take<char>(patch_bytes());
    s.c = memory.take_lines<float>(c_floats());
    s.bias = memory.take_lines<float>(panels_per_block_ * panel_width());
    s.runs = memory.take_lines<dim>(2 * taps_);
    s.stage = memory.take_lines<char>(
        stage_rows_ * walk_[1].in_length * k_chunk_ * static_cast<dim>(size_of(p_.type)));
    s.exact = memory.take<char>(static_cast<dim>(exact_bytes_));
    return s;
}

std::size_t tiled_layout::scratch_bytes() const {
    return bytes_of_walk([this](memory_walk &memory) { return lay_out(memory); });
}

tiled_layout::shared_memory tiled_layout::lay_out_shared(memory_walk &memory) const {
    if (!share_weights_) return {};
    shared_memory shared{};
    shared.weights = memory.take_lines<char>(p_.groups * panels_ * panel_bytes(kept_units()));
    shared.ranges = memory.take_lines<value_range>(shared_pieces());
    return shared;
}

std::size_t tiled_layout::shared_bytes() const {
    return bytes_of_walk([this](memory_walk &memory) { return lay_out_shared(memory); });
}

std::string tiled_layout::describe() const {
    if (tasks_ == 0) return "nothing to sum";
    const auto n = [](dim v) { return std::to_string(v); };
    return "tile " + n(tile_[0]) + "x" + n(tile_[1]) + "x" + n(tile_[2]) + ", phases "
           + n(static_cast<dim>(taps_of_.phases.size())) + ", panel " + n(panel_width())
           + ", block " + n(std::min(roles_.out_c, panels_per_block_ * panel_width()))
           + " channels, chunk " + n(k_chunk_) + " of " + n(roles_.in_c)
           + (read_input_ ? ", input in place" : "") + (stacked_ ? ", images side by side" : "")
           + (share_weights_   ? ", weights packed before"
               : keep_weights_ ? ""
                               : ", weights packed per tile")
           + ", tasks " + n(tasks_);
}

}  // namespace convgrad::cpu
