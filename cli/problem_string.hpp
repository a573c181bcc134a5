// benchdnn's one-line problem syntax for convolutions and transposed convolutions.
//
//   g32mb16ic128ih56oc128oh56kh3ph1n"resnext50:g32_c128*3"
//
// g groups, mb batch, ic/oc channels of all groups, then in (i), out (o), kernel (k), stride (s),
// dilation (d, 0 = dense) and begin pad (p), each with an axis letter d, h or w. `_` may stand
// between parts. docs/command.md has the rules for what is left out.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include <convgrad/types.hpp>

#include "usage_error.hpp"

namespace convgrad::cli {

/// One spatial axis of a problem, in benchdnn's terms.
struct spatial {
    dim in = 1, out = 1, kernel = 1, stride = 1;
    dim dilation = 0;  // 0 = dense: the graph attribute minus 1
    dim pad = 0;       // begin

    friend bool operator==(const spatial &, const spatial &) = default;
};

/// A convolution, or with `deconv` a transposed convolution, whose ic and in describe its own src.
/// Complete: everything that was left out in the text has been worked out, and is consistent.
struct problem_string {
    bool deconv = false;
    int rank = 2;  // number of spatial axes
    dim groups = 1, mb = 2, ic = 0, oc = 0;
    std::array<spatial, 3> x;  // depth, height, width; unused leading axes are unit
    std::string name;          // as written, without quotes, `*N` included
    dim count = 1;             // N of `name*N`: how often the layer occurs in its network

    friend bool operator==(const problem_string &, const problem_string &) = default;
};

/// A text that is no legal problem. `position` counts characters from 0; npos: the text as a whole.
struct problem_error : usage_error {
    problem_error(const std::string &message, std::size_t position_)
        : usage_error(message), position(position_) {}
    std::size_t position;
};

/// Reads `text`. Throws problem_error for what benchdnn rejects, and for sizes that do not fit
/// together or overflow 64 bits.
problem_string parse_problem(std::string_view text, bool deconv);

/// The shortest text that parse_problem() reads as the same problem.
std::string to_text(const problem_string &p, bool with_name = true);

/// The end pad that follows from an axis' sizes; negative where the kernel does not reach the last
/// elements of the longer side.
dim end_pad(const spatial &a, bool deconv);

/// What `error` says about `text`, with the text and a caret under the position.
std::string describe(const problem_error &error, std::string_view text);

}  // namespace convgrad::cli
