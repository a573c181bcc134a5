// One thing to verify, time or explain: a problem, an op, types, layouts and where to run it.
#pragma once

#include <array>
#include <compare>
#include <memory>
#include <string>
#include <vector>

#include <convgrad/engine.hpp>
#include <convgrad/op.hpp>

#include "arrangement.hpp"
#include "conv/problem.hpp"
#include "op/lower.hpp"
#include "problem_string.hpp"
#include "tools/reference.hpp"

namespace convgrad::cli {

/// Behind the name of a CUDA engine that may use cuDNN.
inline constexpr std::string_view cudnn_suffix = "+cudnn";

/// Settings of the engine that runs a case.
struct engine_choice {
    int threads = 0;  // 0: as many as the library takes by itself
    isa max_isa = isa::best;
    math_mode math = math_mode::accurate;
    engine_kind kind = engine_kind::cpu;  // another one has neither threads nor instruction sets
    int device = 0;
    bool cudnn = false;

    friend auto operator<=>(const engine_choice &, const engine_choice &) = default;
};

struct op_case {
    std::shared_ptr<const problem_string> problem;
    op_kind kind = op_kind::convolution;
    data_type type = data_type::f32;
    data_format data = data_format::nxc;
    weights_format weights = weights_format::xio;
    engine_choice on;
};

/// The ops that compute alone, not as part of a convolution's partition.
std::vector<op_kind> computed_ops();
/// True for ConvTranspose and its gradients.
bool is_transposed(op_kind kind);
/// The canonical pass behind an op.
conv::pass pass_of(op_kind kind);
/// The weights formats that an op takes, its default first. An op without weights has one that
/// means nothing.
std::vector<weights_format> weights_formats_of(op_kind kind);

/// The weights format of a case; "-" where there are no weights.
std::string_view weights_text(const op_case &c);

/// "cpu", "cuda:0".
std::string engine_name(const engine_choice &on);

/// The options that select exactly this case on `engine_threads` threads, problem included.
std::string selecting_options(const op_case &c, int engine_threads);

/// Tensors by canonical role (see conv::problem).
enum class role : std::uint8_t { src, weights, dst, bias };

/// An op ready to be put into a graph, and beside it the canonical problem, made from the problem
/// string alone: what the library makes of the op is what gets checked, so it is not used here.
struct op_call {
    op node;
    conv::problem problem;
    std::vector<role> inputs;  // of node, in order, but for an optional bias
    role output{};
    std::array<dim, 4> elements{};            // by role; 0: it has no such tensor
    dim bias_elements = 0;                    // of an optional bias or bias gradient; 0: none
    std::array<dims, 4> shapes{}, strides{};  // by role; strides are empty where packed

    [[nodiscard]] dim elements_of(role r) const { return elements[static_cast<std::size_t>(r)]; }
};

/// `with_bias` gives forward ops their optional input. `with_extras` lets gradients accumulate, and
/// gives weights gradients the type f32 and a bias gradient; forward ops add to what their output
/// holds (which is no attribute: the problem tells it, the node does not). `how` arranges all
/// tensors but the bias and its gradient.
op_call make_call(
    const op_case &c, bool with_bias, bool with_extras = false, const arrangement &how = {});

bool is_gradient(op_kind kind);
/// False for BiasAddBackward, which sums the dst of a problem up.
bool has_weights(op_kind kind);

/// Bytes of all tensors of a case together; an output that is added to counts twice.
double bytes_of(const op_call &call);
/// Number of products that one output element sums up, padded taps counted.
double terms_of(const conv::problem &p);

/// The offset of an output element, in elements.
dim offset_of(const conv::problem &p, const conv::point &at);
/// An output element's index in the tensor's own order of axes: "[0, 3, 3, 12]".
std::string index_text(const op_case &c, const conv::problem &p, const conv::point &at);
/// Number of output elements along each coordinate of a conv::point.
std::array<dim, 5> output_extents(const conv::problem &p);

}  // namespace convgrad::cli
