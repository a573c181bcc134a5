// One channel per group on planes (NCX): rows of 7 columns leave most of a vector empty, so blocks
// of channels are transposed to channels side by side, a few images at a time or some rows of an
// image, and the depthwise drivers do the rest; results of data passes are transposed back.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "conv/problem.hpp"
#include "cpu/depthwise.hpp"
#include "cpu/kernels/kernels.hpp"
#include "cpu/memory_walk.hpp"
#include "cpu/parallel.hpp"
#include "cpu/work_cut.hpp"

namespace convgrad::cpu {

/// Whether a (simplified) problem can run in this form; if not, `why` (optional) tells.
bool fits_turned(const conv::problem &p, std::string *why);

class turned_planes {
public:
    turned_planes(const conv::problem &p, const kernel_set &kernels, int threads,
        std::size_t workspace_limit);
    [[nodiscard]] std::size_t workspace() const;
    [[nodiscard]] std::string describe() const;
    [[nodiscard]] work_list work() const;
    void execute(const conv::buffers &data, char *workspace, const executor &threads) const;

private:
    /// Some images of a block of channels, or some rows of one.
    struct piece {
        dim channel, channels;
        dim image, images;
        dim range;
    };
    /// Rows of an image along the first axis that has several: of the output (of a weights
    /// gradient: of dst), and what they read.
    struct row_range {
        dim out, out_rows, in, in_rows;
        conv::axis axis;  // of the problem that is left
        std::size_t plan;
    };
    /// One of the two is null.
    struct inner {
        dim images;
        conv::axis axis;
        std::unique_ptr<const depthwise_data> data;
        std::unique_ptr<const depthwise_weights> weights;
    };
    struct scratch {
        char *src, *dst;       // [image][position][channel of the block]
        char *weights, *bias;  // [tap][channel of the block]
        char *inner;
    };
    [[nodiscard]] bool gradient() const { return p_.what == conv::pass::backward_weights; }
    [[nodiscard]] dim tasks() const { return blocks_ * parts_; }
    [[nodiscard]] dim block_floats() const { return taps_ * block_; }
    [[nodiscard]] piece make_piece(dim block, dim index) const;
    [[nodiscard]] std::size_t find_inner(
        dim images, const conv::axis &axis, std::size_t workspace_limit);
    [[nodiscard]] const inner &inner_of(const piece &part) const {
        return inner_[part.images < images_ ? rest_plan_
                                            : ranges_[static_cast<std::size_t>(part.range)].plan];
    }
    [[nodiscard]] bool forward_rows() const { return p_.what != conv::pass::backward_data; }
    [[nodiscard]] scratch lay_out(memory_walk &memory) const;
    [[nodiscard]] float *lay_out_results(memory_walk &memory) const;
    [[nodiscard]] std::size_t scratch_bytes() const;
    [[nodiscard]] std::size_t results_bytes() const;
    void choose_pieces(int threads);
    [[nodiscard]] dim choose_parts(dim fewest, dim most);
    void cut_rows(dim ranges);
    /// Positions of the rows of a piece: the first, and how many.
    struct run {
        dim first, count;
    };
    [[nodiscard]] run src_run(const piece &part) const;
    [[nodiscard]] run dst_run(const piece &part) const;
    void turn_in(const void *in, const conv::data_strides &s, const run &positions,
        const piece &part, char *to) const;
    void turn_out(const char *from, const run &positions, const piece &part, void *out,
        const conv::data_strides &s) const;
    void copy_weights(const conv::buffers &data, const piece &part, const scratch &to) const;
    void run_piece(const scratch &mine, const conv::buffers &data, const piece &part) const;
    void sum_part(
        const scratch &mine, const conv::buffers &data, dim block, dim part, float *sums) const;
    void write_block(const conv::buffers &data, float *results, dim block) const;
    [[nodiscard]] task_cost cost_of(dim index) const;

    conv::problem p_;
    const kernel_set &kernels_;
    dim src_positions_, dst_positions_, taps_;
    dim block_ = 0, blocks_ = 0;     // channels of a block
    std::size_t axis_;               // along which rows are cut
    std::vector<row_range> ranges_;  // of an image
    dim images_ = 0, pieces_ = 0;    // images of a piece
    dim parts_ = 1;                  // runs of pieces: of a data pass, all pieces
    std::vector<inner> inner_;       // one for each kind of piece
    std::size_t rest_plan_ = 0;      // for a rest of images
    std::size_t inner_bytes_ = 0;
    int workers_ = 1;
};

}  // namespace convgrad::cpu
