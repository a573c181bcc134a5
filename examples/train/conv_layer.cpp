#include "conv_layer.hpp"

#include <algorithm>
#include <cmath>

namespace convgrad::train {
namespace {

op_kind kind_of(bool transposed, std::size_t step) {
    const op_kind first = transposed ? op_kind::conv_transpose : op_kind::convolution;
    return static_cast<op_kind>(static_cast<std::size_t>(first) + step);
}

}  // namespace

conv_layer::conv_layer(
    const conv_shape &shape, data_type type, const place &where, random_numbers &random, bool first)
    : shape_(shape), type_(type), engine_(where.on), stream_(where.on), home_{where.there},
      first_(first), op_src_(type, home_), op_weights_(type, home_), op_bias_(type, home_),
      op_dst_(type, home_), op_diff_dst_(type, home_), op_diff_src_(type, home_),
      op_diff_weights_(type, home_), op_diff_bias_(type, home_) {
    attributes_.strides = {shape.stride, shape.stride};
    attributes_.pads_begin = attributes_.pads_end = {shape.pad, shape.pad};
    attributes_.groups = shape.groups;
    // The default orders, XIO and XOI: the last axis is the one that is not divided by groups.
    weights_shape_ = {shape.kernel, shape.kernel,
        (shape.transposed ? shape.out : shape.in) / shape.groups,
        shape.transposed ? shape.in : shape.out};

    // He's initialisation: keeps the size of values from layer to layer under ReLU.
    dim terms = shape.kernel * shape.kernel * shape.in / shape.groups;
    if (shape.transposed) terms = std::max<dim>(1, terms / (shape.stride * shape.stride));
    const float bound = std::sqrt(6.0F / static_cast<float>(terms));
    weights_.name = shape.name + ".weights";
    weights_.decays = true;
    weights_.value.resize(static_cast<std::size_t>(
        shape.kernel * shape.kernel * weights_shape_[2] * weights_shape_[3]));
    for (float &w : weights_.value) w = random.uniform(-bound, bound);
    bias_.name = shape.name + ".bias";
    if (shape.bias) bias_.value.assign(static_cast<std::size_t>(shape.out), 0.0F);

    for (std::size_t i = 0; i < 3; ++i) {
        times_[i].layer = shape.name;
        times_[i].kind = kind_of(shape.transposed, i);
    }
}

std::vector<parameter *> conv_layer::parameters() {
    if (shape_.bias) return {&weights_, &bias_};
    return {&weights_};
}

const conv_layer::plans &conv_layer::plans_for(const dims &src) {
    if (const auto known = plans_.find(src); known != plans_.end()) return known->second;
    const dims dst =
        infer_shape(kind_of(shape_.transposed, forward_step), src, weights_shape_, attributes_);
    const logical_tensor x(0, type_, src), w(1, type_, weights_shape_), y(2, type_, dst),
        b(3, type_, {shape_.out});
    const compile_options on_engine{.on = &engine_},
        with_bias_gradient{.diff_bias = true, .on = &engine_};

    std::vector<logical_tensor> forward_inputs = {x, w}, weights_outputs = {w};
    if (shape_.bias) forward_inputs.push_back(b), weights_outputs.push_back(b);
    const auto kind = [&](step which) { return kind_of(shape_.transposed, which); };
    std::optional<compiled_partition> backward_data;
    if (!first_) backward_data = compile(kind(data_step), {{y, w}}, {{x}}, attributes_, on_engine);
    return plans_
        .emplace(src,
            plans{dst, compile(kind(forward_step), forward_inputs, {{y}}, attributes_, on_engine),
                backward_data,
                compile(kind(weights_step), {{x, y}}, weights_outputs, attributes_,
                    shape_.bias ? with_bias_gradient : on_engine)})
        .first->second;
}

void conv_layer::run(step which, const compiled_partition &ready, list_view<const_tensor> inputs,
    list_view<tensor> outputs) {
    const clock::time_point start = clock::now();
    const auto work = [&] { ready.execute(stream_, inputs, outputs); };
    double computing = 0;
    if (home_.there != nullptr)
        computing = home_.there->run(stream_, work);
    else
        work();
    const double spent = std::chrono::duration<double>(clock::now() - start).count();
    if (!home_.counted) return;
    if (home_.there == nullptr) computing = spent;
    home_.log.waiting += std::max(0.0, spent - computing);
    op_time &t = times_[which];
    t.fastest = t.calls == 0 ? computing : std::min(t.fastest, computing);
    t.seconds += computing;
    ++t.calls;
}

const values &conv_layer::forward(const values &src, phase when) {
    const plans &ready = plans_for(src.shape);
    home_.counted = when == phase::training;
    x_ = op_src_.filled(src.data, src.shape);
    w_ = op_weights_.filled(weights_.value, weights_shape_);
    std::vector<const_tensor> inputs = {x_, w_};
    if (shape_.bias) inputs.push_back(op_bias_.filled(bias_.value, {shape_.out}));
    dst_.shape = ready.dst;
    const tensor dst = op_dst_.room(dst_.data, dst_.shape);
    run(forward_step, ready.forward, inputs, {{dst}});
    op_dst_.fetch(dst_.data);
    return dst_;
}

const values &conv_layer::backward(const values &diff_dst) {
    const plans &ready = plans_for(x_.shape);
    home_.counted = true;  // only training comes this way
    const const_tensor dy = op_diff_dst_.filled(diff_dst.data, diff_dst.shape);

    std::vector<tensor> gradients = {op_diff_weights_.room(weights_.gradient, weights_shape_)};
    if (shape_.bias) gradients.push_back(op_diff_bias_.room(bias_.gradient, {shape_.out}));
    run(weights_step, ready.backward_weights, {{x_, dy}}, gradients);
    op_diff_weights_.fetch(weights_.gradient);
    if (shape_.bias) op_diff_bias_.fetch(bias_.gradient);

    if (ready.backward_data) {
        diff_src_.shape = x_.shape;
        const tensor dx = op_diff_src_.room(diff_src_.data, diff_src_.shape);
        run(data_step, *ready.backward_data, {{dy, w_}}, {{dx}});
        op_diff_src_.fetch(diff_src_.data);
    }
    // Remembered here because only training batches come this way.
    if (times_[forward_step].problem.empty())
        for (op_time &t : times_) t.problem = problem_text(x_.shape);
    return diff_src_;
}

std::string conv_layer::problem_text(const dims &src) const {
    const auto part = [](const char *key, dim n) { return key + std::to_string(n); };
    std::string text = shape_.groups > 1 ? part("g", shape_.groups) : "";
    text += part("mb", src[0]) + part("ic", shape_.in) + part("ih", src[1]) + part("iw", src[2])
            + part("oc", shape_.out) + part("kh", shape_.kernel) + part("kw", shape_.kernel);
    if (shape_.stride > 1) text += part("sh", shape_.stride) + part("sw", shape_.stride);
    if (shape_.pad > 0) text += part("ph", shape_.pad) + part("pw", shape_.pad);
    return text + "n\"" + shape_.name + "\"";
}

std::vector<op_time> conv_layer::times() const {
    std::vector<op_time> list;
    for (const op_time &t : times_)
        if (!first_ || &t != &times_[data_step]) list.push_back(t);
    return list;
}

}  // namespace convgrad::train
