// Both gradients of a layer in one pass over the batch: piece by piece, first the data gradient and
// then the weights gradient and the bias gradient of about the same positions, whose diff_dst is in
// a cache by then. Each computes what it computes alone, in the same order, so all bits are the
// same.
#pragma once

#include <functional>

#include "conv/problem.hpp"
#include "cpu/geometry.hpp"
#include "cpu/parallel.hpp"

namespace convgrad::cpu {

/// Units [first, last) of an execution, which go through the batch in the order of memory, × some
/// of its blocks of channels.
struct walk_piece {
    dim first, last;
    dim first_block, last_block;
};

/// The data gradient, started. Its results do not depend on each other: any piece may come first.
struct data_walk {
    dim units = 0, blocks = 1;
    int workers = 1;
    std::function<void(int worker, const walk_piece &)> run;
    /// Asks for the memory of a piece that comes soon; may be empty.
    std::function<void(const walk_piece &)> expect = {};
};

/// How a weights gradient is summed. Part i begins with unit units · i / parts; each part is a sum
/// of its own for each group of blocks of channels.
struct sum_cut {
    dim units = 0, parts = 0, groups = 1;

    [[nodiscard]] dim begin(dim part) const { return units * part / parts; }
};

/// The weights gradient, started. The units of a part and group come in order, in any number of
/// pieces, on one worker that does no other part in between.
struct sum_walk {
    sum_cut cut;
    int workers = 1;
    bool mixes = false;  // a worker may change from group to group
    std::function<void(int worker, dim part, dim group, dim first, dim last)> run;
    std::function<void(const executor &threads)> finish;
    /// Asks for the memory of a piece, except diff_dst; may be empty.
    std::function<void(dim first_group, dim last_group, dim first, dim last)> expect = {};
};

struct joint_pass {
    data_walk data;
    sum_walk sums;
    double bytes = 0;  // of src, diff_dst and diff_src
};

void run_joint(const joint_pass &pass, const executor &threads);

/// Part of a data tensor.
struct tensor_box {
    dim n, channel, channels;
    dim first[3], last[3];
};
/// What positions [t0, t0 + length) are the first to read of the input, or write of the output;
/// channels and image are left to the caller.
tensor_box fresh_box(
    const axis_walk (&walk)[3], const dim (&t0)[3], const dim (&length)[3], bool output);
/// Asks for the memory of a box before it is read or written.
void expect_box(const void *tensor, data_type type, const conv::data_strides &strides,
    const tensor_box &box, bool write);

}  // namespace convgrad::cpu
