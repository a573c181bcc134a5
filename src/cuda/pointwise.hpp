// Layers of one tap between planes that the copy engine reads and writes where they lie (compute
// capability 9.0).
#pragma once

#include "cuda/bulk.hpp"
#include "cuda/kernels/pointwise_args.hpp"

namespace convgrad::cuda {

wide positions_of_plane(const conv::problem &p);
/// From one position to the next through all images of a tensor whose channels lie side by side, in
/// whole pieces of 16 bytes; 0: it does not lie so.
wide pixel_pitch(const conv::problem &p, bool is_src);
/// As many positions at once as 128 bytes hold.
plane_boxes boxes_of(const conv::problem &p);
plane_form form_of(const conv::problem &p, bool is_src);
/// Whether the copy engine can walk from there on.
bool starts_piece(const void *at);

/// A tensor that the engine copies from: where it lies, or moved to where the engine can.
struct planes {
    plane_form form;
    std::size_t element;

    planes(const conv::problem &p, bool is_src)
        : form(form_of(p, is_src)), element(size_of(p.type)) {}
    /// Of room for it.
    [[nodiscard]] std::size_t bytes() const;
    /// Its map, in boxes of so many channels.
    tensor_map read(
        data_type type, const void *data, int channels, void *room, const lane &on) const;

private:
    [[nodiscard]] std::size_t elements() const;
};

/// All of a weights gradient but its pointers: input channels in lines of 64.
pointwise_weights_args make_args(
    const conv::problem &p, const plane_boxes &boxes, wide parts, wide tiles_m, wide tiles_n);
/// Where a data pass stores: the copy engine does, through `out`, in slices of channels.
void bind_output(bulk_args &b, const conv::problem &p, const lane &on);

/// What sums of a weights gradient get, when so much is taken.
engines::plan_limits left_of(const engines::plan_limits &limits, std::size_t taken);

/// f32, which the ones in bulk.hpp end in.
prediction predict_pointwise_f32(
    const conv::problem &p, const architecture &on, const engines::plan_limits &limits);
std::unique_ptr<const engines::plan> make_pointwise_f32_plan(std::string_view name,
    const conv::problem &p, const architecture &on, const engines::plan_limits &limits);

}  // namespace convgrad::cuda
