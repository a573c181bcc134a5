// A convolution or a transposed convolution as a layer: the only place where the library is called.
#pragma once

#include <chrono>
#include <map>
#include <optional>

#include <convgrad/convgrad.hpp>

#include "device.hpp"
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
    double seconds = 0;  // of the device's own clock, where there is one
    double fastest = 0;  // seconds of the shortest call
};

/// A tensor of the convolutions: f32 values rounded to their type, where they compute.
class operand {
public:
    operand(data_type type, residence &home) : narrow_(type), there_(home) {}

    const_tensor filled(const std::vector<float> &from, const dims &shape) {
        return there_.filled(narrow_.rounded(from, shape));
    }
    /// Memory for a result; fetch() brings it into `to`.
    tensor room(std::vector<float> &to, const dims &shape) {
        host_ = narrow_.room(to, shape);
        return there_.room(host_);
    }
    void fetch(std::vector<float> &to) const {
        there_.fetch(host_);
        narrow_.widen(to);
    }

private:
    narrow_copy narrow_;
    device_copy there_;
    tensor host_;
};

class conv_layer final : public layer {
public:
    /// `first`: nobody needs the gradient with respect to src, so it is not computed.
    conv_layer(const conv_shape &shape, data_type type, const place &where, random_numbers &random,
        bool first = false);
    const values &forward(const values &src, phase when) override;
    const values &backward(const values &diff_dst) override;
    std::vector<parameter *> parameters() override;

    /// Forward, gradient for src (unless this is the first layer), gradient for weights.
    [[nodiscard]] std::vector<op_time> times() const;
    /// What a device cost beside that in training steps.
    [[nodiscard]] const transfer_time &transfers() const { return home_.log; }

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
        list_view<tensor> outputs);
    [[nodiscard]] std::string problem_text(const dims &src) const;

    conv_shape shape_;
    data_type type_;
    engine engine_;
    stream stream_;
    residence home_;
    bool first_;
    attributes attributes_;
    dims weights_shape_;
    parameter weights_, bias_;
    operand op_src_, op_weights_, op_bias_, op_dst_, op_diff_dst_, op_diff_src_, op_diff_weights_,
        op_diff_bias_;
    const_tensor x_, w_;  // src and weights as the last forward() saw them
    values dst_, diff_src_;
    std::map<dims, plans> plans_;
    op_time times_[3];
};

}  // namespace convgrad::train
