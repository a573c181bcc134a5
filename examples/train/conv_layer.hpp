// A convolution or a transposed convolution as a layer: the only place where the library is called.
#pragma once

#include <chrono>
#include <map>
#include <optional>

#include <convgrad/convgrad.hpp>

#include "layer.hpp"
#include "narrow.hpp"
#include "random.hpp"

namespace convgrad::train {

struct conv_shape {
    std::string name;
    dim in = 0, out = 0;  // channels
    dim kernel = 1, stride = 1, pad = 0, groups = 1;
    bool transposed = false;
    bool bias = false;
};

/// What one op of one layer did in training steps.
struct op_time {
    std::string layer;
    op_kind kind = op_kind::convolution;
    std::string problem;  // in the command's syntax, name included
    long calls = 0;
    double seconds = 0;
    double fastest = 0;  // seconds of the shortest call
};

class conv_layer final : public layer {
public:
    /// `first`: nobody needs the gradient with respect to src, so it is not computed.
    conv_layer(const conv_shape &shape, data_type type, const engine &on, random_numbers &random,
        bool first = false);
    const values &forward(const values &src, phase when) override;
    const values &backward(const values &diff_dst) override;
    std::vector<parameter *> parameters() override;

    /// Forward, gradient for src (unless this is the first layer), gradient for weights.
    [[nodiscard]] std::vector<op_time> times() const;

private:
    using clock = std::chrono::steady_clock;
    /// The three ops made ready for one shape of src.
    struct plans {
        dims dst;
        compiled_partition forward;
        std::optional<compiled_partition> backward_data;
        compiled_partition backward_weights;
    };
    enum step : std::size_t { forward_step, data_step, weights_step };

    const plans &plans_for(const dims &src);
    void run(step which, const compiled_partition &ready, list_view<const_tensor> inputs,
        list_view<tensor> outputs, bool counted);
    [[nodiscard]] std::string problem_text(const dims &src) const;

    conv_shape shape_;
    data_type type_;
    engine engine_;
    stream stream_;
    bool first_;
    attributes attributes_;
    dims weights_shape_;
    parameter weights_, bias_;
    narrow_copy narrow_src_, narrow_weights_, narrow_bias_, narrow_dst_, narrow_diff_dst_,
        narrow_diff_src_, narrow_diff_weights_, narrow_diff_bias_;
    const_tensor x_, w_;  // src and weights as the last forward() saw them
    values dst_, diff_src_;
    std::map<dims, plans> plans_;
    op_time times_[3];
};

}  // namespace convgrad::train
