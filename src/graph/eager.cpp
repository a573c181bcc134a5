// Single ops at once, without a graph.
#include <convgrad/eager.hpp>

#include <algorithm>
#include <array>

#include "graph/compiled.hpp"
#include "graph/tensors.hpp"
#include "op/guard.hpp"
#include "op/message.hpp"
#include "op/schema.hpp"

namespace convgrad {
inline namespace CONVGRAD_ABI {
namespace {

using ops::most_inputs, ops::most_outputs;

logical_tensor described(const const_tensor &t) {
    if (t.type == data_type::undef) return {};
    return {0, t.type, t.shape, t.strides};
}

ops::op_flags flags_of(const options &opts) {
    return {opts.accumulate, opts.diff_bias != nullptr, opts.relu, opts.add != nullptr};
}

/// One op with its tensors, checked and planned, about to run.
class call {
public:
    /// Null pointers stand for optional tensors that are left out.
    call(op_kind kind, std::initializer_list<const const_tensor *> inputs,
        std::initializer_list<const tensor *> outputs, const attributes &attrs, const options &opts,
        const engine::impl &on)
        : attrs_(ops::parse(kind, attrs, (*inputs.begin())->shape.size(), flags_of(opts))) {
        for (const const_tensor *t : inputs) inputs_[input_count_++] = t;
        for (const tensor *t : outputs)
            if (t != nullptr) outputs_[output_count_++] = t;
        while (input_count_ > 0 && inputs_[input_count_ - 1] == nullptr) --input_count_;

        std::array<logical_tensor, most_inputs> in;
        std::array<logical_tensor, most_outputs> out;
        for (std::size_t i = 0; i < input_count_; ++i)
            if (inputs_[i] != nullptr) in[i] = described(*inputs_[i]);
        for (std::size_t i = 0; i < output_count_; ++i) out[i] = described(*outputs_[i]);
        const std::span ins(in.data(), input_count_);
        const std::span outs(out.data(), output_count_);
        ops::check_arguments(attrs_, ins, outs);
        plan_ = plan_op(attrs_, ins, outs, on);
        check_memory(attrs_, view(), *on.backend);
    }

    [[nodiscard]] const engines::plan &plan() const { return *plan_; }
    void execute(void *scratch, engines::lane &on) const {
        const conv::buffers data = memory();
        ops::naming(attrs_.kind, {}, [&] { plan_->execute({&data, 1}, scratch, on); });
    }
    [[nodiscard]] conv::buffers memory() const { return bind_memory(attrs_, view()); }

private:
    [[nodiscard]] arguments view() const {
        return {{inputs_.data(), input_count_}, {outputs_.data(), output_count_}};
    }

    ops::parsed_attributes attrs_;
    std::array<const const_tensor *, most_inputs> inputs_{};
    std::array<const tensor *, most_outputs> outputs_{};
    std::size_t input_count_ = 0, output_count_ = 0;
    std::unique_ptr<const engines::plan> plan_;
};

/// Where a call runs: the caller's queue, or one of the engine's.
class place {
public:
    /// See ops::naming().
    template <typename Work>
    decltype(auto) naming(Work &&work) const {
        return ops::naming(kind_, {}, work);
    }
    /// For an op of that kind, which errors name.
    place(op_kind kind, const options &opts)
        : kind_(kind), engine_(opts.queue != nullptr ? opts.queue->get_engine().get()
                               : opts.on != nullptr  ? opts.on->get()
                                                     : default_engine().get()),
          own_(opts.queue != nullptr ? nullptr
                                     : naming([&] { return engine_.backend->open(nullptr); })),
          lane_(opts.queue != nullptr ? opts.queue->get() : *own_) {
        if (opts.queue != nullptr && opts.on != nullptr && &opts.on->get() != &engine_)
            throw error(error_code::invalid_argument,
                "eager call: options on and queue name different engines; give one of them");
        naming([&] { lane_.check(); });
    }

    [[nodiscard]] const engine::impl &on() const { return engine_; }
    [[nodiscard]] engines::lane &queue() const { return lane_; }
    [[nodiscard]] engines::scratch_lease scratch(std::size_t bytes) const {
        return naming([&] { return engines::scratch_lease(lane_, bytes); });
    }
    /// Returns when a queue of the engine's own has run empty; a caller's is the caller's to wait
    /// for.
    void finish() const {
        if (own_ != nullptr) naming([&] { own_->wait(); });
    }

private:
    op_kind kind_;
    const engine::impl &engine_;
    std::shared_ptr<engines::lane> own_;
    engines::lane &lane_;
};

void run_op(op_kind kind, std::initializer_list<const const_tensor *> inputs,
    std::initializer_list<const tensor *> outputs, const attributes &attrs, const options &opts) {
    guarded("eager call", [&] {
        const place where(kind, opts);
        const call prepared(kind, inputs, outputs, attrs, opts, where.on());
        {
            const auto scratch = where.scratch(prepared.plan().workspace());
            prepared.execute(scratch.data(), where.queue());
        }
        where.finish();
    });
}

/// An optional tensor: one without a type is left out.
const const_tensor *optional(const const_tensor &t) {
    return t.type == data_type::undef ? nullptr : &t;
}

/// The options that a data gradient takes.
options without_bias(options opts) {
    opts.diff_bias = nullptr;
    return opts;
}

/// What check_memory() cannot see: one gradient's output in the place of the other's tensor.
void check_apart(op_kind kind, std::string_view name, const const_tensor &t,
    std::initializer_list<const tensor *> outputs) {
    for (const tensor *out : outputs)
        if (out != nullptr && shares_memory(*out, t))
            ops::fail(error_code::invalid_argument, kind, {},
                ops::cat(name, " has the same data pointer as an output; they must not overlap"));
}

/// Both gradients in one pass over diff_dst where that is faster, otherwise one after the other.
void run_plans(const place &where, const call &data, const call &weights) {
    const auto joint = where.on().backend->join(data.plan(), weights.plan(), where.on().limits());
    const auto scratch = where.scratch(
        joint != nullptr ? joint->workspace()
                         : std::max(data.plan().workspace(), weights.plan().workspace()));
    if (joint != nullptr) {
        const conv::buffers memory[] = {data.memory(), weights.memory()};
        where.naming([&] { joint->execute(memory, scratch.data(), where.queue()); });
        return;
    }
    data.execute(scratch.data(), where.queue());
    weights.execute(scratch.data(), where.queue());
}

void run_both(op_kind data_kind, op_kind weights_kind, const const_tensor &src,
    const const_tensor &diff_dst, const const_tensor &weights, const tensor &diff_src,
    const tensor &diff_weights, const attributes &attrs, const options &opts) {
    guarded("eager call", [&] {
        const place where(data_kind, opts);
        const call data_gradient(
            data_kind, {&diff_dst, &weights}, {&diff_src}, attrs, without_bias(opts), where.on());
        const call weights_gradient(weights_kind, {&src, &diff_dst},
            {&diff_weights, opts.diff_bias}, attrs, opts, where.on());
        check_apart(data_kind, "src", src, {&diff_src});
        check_apart(data_kind, "weights", weights, {&diff_weights, opts.diff_bias});
        check_apart(data_kind, "diff_src", diff_src, {&diff_weights, opts.diff_bias});
        run_plans(where, data_gradient, weights_gradient);
        where.finish();
    });
}

}  // namespace

void convolution(const const_tensor &src, const const_tensor &weights, const const_tensor &bias,
    const tensor &dst, const attributes &attrs, const options &opts) {
    run_op(op_kind::convolution, {&src, &weights, optional(bias), opts.add}, {&dst}, attrs, opts);
}

void convolution_backward_data(const const_tensor &diff_dst, const const_tensor &weights,
    const tensor &diff_src, const attributes &attrs, const options &opts) {
    run_op(op_kind::convolution_backward_data, {&diff_dst, &weights}, {&diff_src}, attrs, opts);
}

void convolution_backward_weights(const const_tensor &src, const const_tensor &diff_dst,
    const tensor &diff_weights, const attributes &attrs, const options &opts) {
    run_op(op_kind::convolution_backward_weights, {&src, &diff_dst},
        {&diff_weights, opts.diff_bias}, attrs, opts);
}

void conv_transpose(const const_tensor &src, const const_tensor &weights, const const_tensor &bias,
    const tensor &dst, const attributes &attrs, const options &opts) {
    run_op(
        op_kind::conv_transpose, {&src, &weights, optional(bias), opts.add}, {&dst}, attrs, opts);
}

void conv_transpose_backward_data(const const_tensor &diff_dst, const const_tensor &weights,
    const tensor &diff_src, const attributes &attrs, const options &opts) {
    run_op(op_kind::conv_transpose_backward_data, {&diff_dst, &weights}, {&diff_src}, attrs, opts);
}

void conv_transpose_backward_weights(const const_tensor &src, const const_tensor &diff_dst,
    const tensor &diff_weights, const attributes &attrs, const options &opts) {
    run_op(op_kind::conv_transpose_backward_weights, {&src, &diff_dst},
        {&diff_weights, opts.diff_bias}, attrs, opts);
}

void bias_add_backward(const const_tensor &diff_dst, const tensor &diff_bias,
    const attributes &attrs, const options &opts) {
    run_op(op_kind::bias_add_backward, {&diff_dst}, {&diff_bias}, attrs, opts);
}

void convolution_backward(const const_tensor &src, const const_tensor &diff_dst,
    const const_tensor &weights, const tensor &diff_src, const tensor &diff_weights,
    const attributes &attrs, const options &opts) {
    run_both(op_kind::convolution_backward_data, op_kind::convolution_backward_weights, src,
        diff_dst, weights, diff_src, diff_weights, attrs, opts);
}

void conv_transpose_backward(const const_tensor &src, const const_tensor &diff_dst,
    const const_tensor &weights, const tensor &diff_src, const tensor &diff_weights,
    const attributes &attrs, const options &opts) {
    run_both(op_kind::conv_transpose_backward_data, op_kind::conv_transpose_backward_weights, src,
        diff_dst, weights, diff_src, diff_weights, attrs, opts);
}

}  // namespace CONVGRAD_ABI
}  // namespace convgrad
