// Shapes along BiasAdd, Add and ReLU.
#include <algorithm>

#include "op/geometry.hpp"
#include "op/message.hpp"

namespace convgrad::ops {
namespace {

class epilogue_shapes {
public:
    epilogue_shapes(const parsed_attributes &attrs, std::span<const logical_tensor> inputs,
        const logical_tensor &output)
        : attrs_(attrs), inputs_(inputs), output_(output), schema_(schema_of(attrs.kind)) {}

    std::optional<dims> run() const {
        for (std::size_t i = 0; i < inputs_.size(); ++i)
            check_sizes(schema_.inputs[i].name, inputs_[i]);
        check_sizes(schema_.outputs[0].name, output_);
        std::optional<dims> found = output_.shape;
        if (attrs_.kind == op_kind::add) {
            if (inputs_[0].shape && inputs_[1].shape) meet(found, sum());
            return found;
        }
        if (inputs_[0].shape) meet(found, *inputs_[0].shape);
        if (attrs_.kind == op_kind::bias_add) check_bias(found);
        return found;
    }

private:
    template <typename... Parts>
    [[noreturn]] void misfit(const Parts &...parts) const {
        fail(error_code::invalid_shape, attrs_.kind, attrs_.op_name, cat(parts...));
    }

    void check_sizes(std::string_view name, const logical_tensor &t) const {
        for (const dim d : t.shape.value_or(dims{}))
            if (d < 0 && d != unknown_dim)
                misfit(name, " has shape ", *t.shape, "; dimensions must not be negative");
    }

    /// Joins what is known of the output with what its inputs say.
    void meet(std::optional<dims> &found, const dims &expected) const {
        if (!found) found = dims(expected.size(), unknown_dim);
        bool fits = found->size() == expected.size();
        for (std::size_t i = 0; fits && i < expected.size(); ++i) {
            dim &mine = (*found)[i];
            if (mine == unknown_dim) mine = expected[i];
            fits = expected[i] == unknown_dim || mine == expected[i];
        }
        if (!fits)
            misfit(schema_.outputs[0].name, " has shape ", *output_.shape, " but the inputs give ",
                expected, "; they must be equal");
    }

    /// The shape of a sum, by the op's rule.
    [[nodiscard]] dims sum() const {
        dims a = *inputs_[0].shape, b = *inputs_[1].shape;
        const bool numpy = attrs_.auto_broadcast == auto_broadcast::numpy;
        bool fits = numpy || a.size() == b.size();
        if (a.size() < b.size()) a.insert(a.begin(), b.size() - a.size(), 1);
        if (b.size() < a.size()) b.insert(b.begin(), a.size() - b.size(), 1);
        for (std::size_t i = 0; i < a.size() && fits; ++i) {
            const bool stretch = numpy && a[i] == 1;
            const bool open = a[i] == unknown_dim && !(numpy && b[i] == 1);
            fits = stretch || open || a[i] == b[i] || b[i] == unknown_dim || (numpy && b[i] == 1);
            if (stretch || open) a[i] = b[i];
        }
        if (!fits)
            misfit("src_0 has shape ", *inputs_[0].shape, " and src_1 ", *inputs_[1].shape,
                numpy ? "; one must be broadcast to the other by NumPy's rules"
                      : "; they must be equal, since auto_broadcast is none");
        return a;
    }

    /// A format that is not given is that of the convolution, which is not known here.
    void check_bias(const std::optional<dims> &found) const {
        const std::optional<dims> &bias = inputs_[1].shape;
        if (!bias) return;
        if (bias->size() != 1)
            misfit("bias has shape ", *bias, "; it must be 1-D, one value per channel");
        if (!found || found->size() < 2 || !attrs_.says_data_format) return;
        const int axes = static_cast<int>(found->size()) - 2;
        const dim channels = (*found)[order_of(attrs_.data_format, axes).c], length = bias->front();
        if (channels != unknown_dim && length != unknown_dim && channels != length)
            misfit("bias has ", length, " elements but src ", *found, " (",
                to_string(attrs_.data_format), ") has ", channels, " channels; they must be equal");
    }

    const parsed_attributes &attrs_;
    std::span<const logical_tensor> inputs_;
    const logical_tensor &output_;
    const op_schema &schema_;
};

}  // namespace

void derive_epilogue(const parsed_attributes &attrs, std::span<const logical_tensor> inputs,
    logical_tensor &output) {
    output.shape = epilogue_shapes(attrs, inputs, output).run();
}

bool broadcasts_to(const dims &small, const dims &large) {
    if (small.size() > large.size()) return false;
    const auto fits = [](dim a, dim b) {
        return a == 1 || a == b || a == unknown_dim || b == unknown_dim;
    };
    return std::equal(
        small.begin(), small.end(), large.end() - static_cast<std::ptrdiff_t>(small.size()), fits);
}

}  // namespace convgrad::ops
