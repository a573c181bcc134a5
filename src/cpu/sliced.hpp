// Few channels per group, or few channels and many images, as depthwise layers: channel i of all
// groups (or of all images) is a slice, whose vectors run along the groups (or the images). Slices
// of a piece are copied to f32, the depthwise drivers run on each pair of an input and an output
// slice, and sums of several inputs are added up there before they leave.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "conv/problem.hpp"
#include "cpu/cost_model.hpp"
#include "cpu/depthwise.hpp"
#include "cpu/kernels/kernels.hpp"
#include "cpu/memory_walk.hpp"
#include "cpu/parallel.hpp"
#include "cpu/work_cut.hpp"

namespace convgrad::cpu {

/// What a vector's lanes are.
enum class slice_lanes : std::uint8_t { groups, images };

/// Whether a (simplified) problem can run in this form; if not, `why` (optional) tells.
bool fits_sliced(const problem_sizes &s, std::string *why);

/// Whether images are without gaps, so that they can be lanes.
bool images_fit(const conv::problem &p);

/// Channels side by side up to so many are picked, or interleaved, by shuffles; more are
/// transposed.
inline constexpr dim most_shuffled = 4;

/// One tensor, in elements.
struct sliced_tensor {
    dim channels;         // of a group
    dim positions, step;  // elements from position to position
    dim lane, item,
        slice;          // and from lane to lane, image (or group) to the next, channel to channel
    dim count;          // of an image
    bool side_by_side;  // channels, not positions
    // In floats, as staged.
    dim staged_slice, staged_item;
};

/// The depthwise problem of one pair of slices: `lanes` groups, `items` images.
conv::problem slice_problem(const conv::problem &p, slice_lanes along, dim lanes, dim items);

/// Floats from slice to slice of what is summed, and of its weights.
struct slice_pitches {
    dim in, weights;
};
/// The one of an output slice and all input slices, which are the first axis (of a weights
/// gradient: of a dst slice and all of src). That has to be free.
conv::problem sum_problem(
    const conv::problem &p, slice_lanes along, dim lanes, dim items, const slice_pitches &pitch);
bool sums_slices(const conv::problem &p);

class sliced_groups {
public:
    sliced_groups(const conv::problem &p, const kernel_set &kernels, int threads,
        std::size_t workspace_limit);
    [[nodiscard]] std::size_t workspace() const;
    [[nodiscard]] std::string describe() const;
    [[nodiscard]] work_list work() const;
    void execute(const conv::buffers &data, char *workspace, const executor &threads) const;

private:
    /// Lanes of a block and items (images or groups) of them.
    struct piece {
        dim lane, lanes;
        dim item, items;
    };
    /// Drivers for one number of items. Of a data pass: of all input slices, or of the first, which
    /// writes, and of the others, which add.
    struct inner {
        std::unique_ptr<const depthwise_data> first, more;
        std::unique_ptr<const depthwise_weights> weights;
    };
    struct scratch {
        float *src, *dst;       // slices
        float *weights, *bias;  // [group of images][output][input][tap][lane]
        float *row;             // results of one position
        char *inner;
        dim held = -1;  // the block whose weights these are
    };
    [[nodiscard]] bool gradient() const { return p_.what == conv::pass::backward_weights; }
    [[nodiscard]] bool by_groups() const { return along_ == slice_lanes::groups; }
    [[nodiscard]] dim tasks() const { return blocks_ * parts_ * cuts_; }
    /// Sets of weights that a block has: one, or one for each group of images.
    [[nodiscard]] dim sets() const { return by_groups() ? 1 : p_.groups; }
    [[nodiscard]] dim block_floats() const { return sets() * p_.oc * p_.ic * taps_ * block_; }
    [[nodiscard]] dim weights_at(dim set, dim o, dim i) const {
        return ((set * p_.oc + o) * p_.ic + i) * taps_ * block_;
    }
    [[nodiscard]] sliced_tensor make_tensor(bool src) const;
    void choose_pieces(int threads);
    void choose_cuts(int threads);
    void settle();
    bool shrink();
    [[nodiscard]] dim first_slice(dim cut) const { return slices_ * cut / cuts_; }
    [[nodiscard]] inner make_inner(dim items) const;
    [[nodiscard]] const inner &inner_of(const piece &part) const {
        return inner_[by_groups() && part.items < items_ ? 1 : 0];
    }
    [[nodiscard]] piece make_piece(dim block, dim index) const;
    [[nodiscard]] scratch lay_out(memory_walk &memory) const;
    [[nodiscard]] float *lay_out_sums(memory_walk &memory) const;
    [[nodiscard]] std::size_t scratch_bytes() const;
    [[nodiscard]] std::size_t sums_bytes() const;
    void stage(const sliced_tensor &t, const void *from, const piece &part, float *to) const;
    void leave(const sliced_tensor &t, const scratch &s, const piece &part, void *to, dim set,
        dim o) const;
    void leave_interleaved(const sliced_tensor &t, const scratch &s, store_args args) const;
    void hold_weights(const conv::buffers &data, dim block, const piece &part, scratch &s) const;
    void run_piece(scratch &s, const conv::buffers &data, dim block, dim index, dim cut) const;
    void sum_part(const scratch &s, const conv::buffers &data, dim block, dim part, dim cut,
        float *sums) const;
    void write_block(const conv::buffers &data, float *results, dim block) const;
    [[nodiscard]] task_cost cost_of(dim index) const;

    conv::problem p_;
    const kernel_set &kernels_;
    slice_lanes along_;
    sliced_tensor src_{}, dst_{};
    dim taps_;
    dim block_ = 0, blocks_ = 1;  // lanes of a block; blocks with weights of their own
    dim items_ = 1, pieces_ = 1;  // items of a piece, pieces of a block
    dim parts_ = 1;               // runs of pieces: of a data pass, all pieces
    dim slices_ = 1, cuts_ = 1;   // output slices of all sets; tasks that share those of a piece
    inner inner_[2];              // for whole pieces, and for a rest of images
    std::size_t inner_bytes_ = 0;
    int workers_ = 1;
};

}  // namespace convgrad::cpu
