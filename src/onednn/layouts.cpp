#include "onednn/layouts.hpp"

#include <algorithm>

#include "graph/tensors.hpp"
#include "op/layout.hpp"
#include "op/schema.hpp"

namespace convgrad::onednn {
namespace {

/// Of a data tensor in NCX whose elements can be counted.
dims channels_last(const dims &shape) {
    dims strides(shape.size());
    dim packed = 1;
    const auto take = [&](std::size_t axis) {
        strides[axis] = packed;
        packed *= shape[axis];
    };
    take(1);
    for (std::size_t axis = shape.size(); axis-- > 2;) take(axis);
    take(0);
    return strides;
}

/// One stage.
class chooser {
public:
    chooser(const stage &of, tensor_list &inputs, tensor_list &outputs)
        : stage_(of), inputs_(inputs), outputs_(outputs) {
        const ops::op_roles &roles = ops::roles_of(of.attrs.kind);
        for (const ops::argument_ref at : {roles.large, roles.small})
            if (at.exists()) add(at.output, at.index);
        data_ = arguments_.size();
        if (of.attrs.add) add(false, of.inputs.size() - 1);
    }

    void run() {
        const auto is_open = [](const argument &a) { return a.open; };
        if (std::none_of(arguments_.begin(), arguments_.end(), is_open)) return;
        infer();
        for (std::size_t i = 0; i < data_; ++i)
            if (!arguments_[i].open && lies_otherwise(*arguments_[i].tensor)) return;
        for (const argument &a : arguments_)
            if (a.open && is_full(*a.tensor)) a.tensor->strides = channels_last(*a.tensor->shape);
    }

private:
    struct argument {
        logical_tensor *tensor;
        bool open;
    };

    void add(bool output, std::size_t index) {
        tensor_list &list = output ? outputs_ : inputs_;
        const std::size_t at = (output ? stage_.outputs : stage_.inputs)[index];
        arguments_.push_back({&list.tensors[at], list.open[at]});
    }

    /// Shapes of outputs follow from those of inputs, unless one is given at execution.
    void infer() {
        const auto in = pick(inputs_.tensors, stage_.inputs);
        auto out = pick(outputs_.tensors, stage_.outputs);
        ops::infer_shapes(stage_.attrs, in, out);
        for (std::size_t i = 0; i < out.size(); ++i)
            outputs_.tensors[stage_.outputs[i]] = std::move(out[i]);
    }

    static bool lies_otherwise(const logical_tensor &t) {
        if (!t.is_known() || is_empty(*t.shape) || (*t.shape)[1] == 1) return false;
        return ops::canonical_strides(t)[1] != 1;
    }

    /// Not empty, and not a smaller tensor that is repeated.
    [[nodiscard]] bool is_full(const logical_tensor &t) const {
        return t.is_known() && !is_empty(*t.shape)
               && t.shape->size() == arguments_[0].tensor->shape->size();
    }

    const stage &stage_;
    tensor_list &inputs_, &outputs_;
    std::vector<argument> arguments_;  // data tensors, and the one to add, which is not asked
    std::size_t data_ = 0;             // how many are data tensors
};

}  // namespace

void choose_layouts(const stage &of, tensor_list &inputs, tensor_list &outputs) {
    // Packed tensors of the other format have their channels last.
    if (of.attrs.data_format != ops::data_format::ncx) return;
    ops::check_arguments(
        of.attrs, pick(inputs.tensors, of.inputs), pick(outputs.tensors, of.outputs));
    chooser(of, inputs, outputs).run();
}

}  // namespace convgrad::onednn
