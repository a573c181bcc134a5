#include "onednn/choice.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace convgrad::onednn {
namespace {

const dims *list_of(const client_op &op, graph_attribute name) {
    const auto found = op.attributes.find(name);
    return found == op.attributes.end() ? nullptr : std::get_if<dims>(&found->second);
}

bool is_empty_list(const client_op &op, graph_attribute name) {
    const dims *list = list_of(op, name);
    return list != nullptr && list->empty();
}

}  // namespace

takeover policy() {
    static const takeover chosen = [] {
        const char *value = std::getenv("CONVGRAD_ONEDNN_POLICY");
        if (value == nullptr || *value == '\0' || std::strcmp(value, "faster") == 0)
            return takeover::faster;
        if (std::strcmp(value, "always") == 0) return takeover::always;
        if (std::strcmp(value, "correct") == 0) return takeover::correct;
        std::fprintf(stderr,
            "convgrad: CONVGRAD_ONEDNN_POLICY is \"%s\"; always, faster and correct are known. "
            "faster is taken.\n",
            value);
        return takeover::faster;
    }();
    return chosen;
}

bool would_crash(const client_op &op) {
    if (!is_family(op.kind)) return false;
    const dims *strides = list_of(op, graph_attribute::strides);
    if (strides != nullptr && std::find(strides->begin(), strides->end(), 0) != strides->end())
        return true;
    return is_empty_list(op, graph_attribute::dst_shape)
           || is_empty_list(op, graph_attribute::weights_shape)
           || is_empty_list(op, graph_attribute::output_padding);
}

std::string known_fault(const partition_body &partition) {
    for (const fused_stage &stage : partition.stages) {
        const auto above_one = [](dim d) { return d > 1; };
        const dims &dilations = stage.attrs.dilations;
        if (stage.attrs.kind == op_kind::conv_transpose_backward_data
            && std::any_of(dilations.begin(), dilations.end(), above_one))
            return "dilations of this gradient are lost";
        if (stage.attrs.kind == op_kind::conv_transpose_backward_weights
            && (stage.attrs.auto_pad == ops::auto_pad::same_upper
                || stage.attrs.auto_pad == ops::auto_pad::same_lower))
            return "automatic pads of this gradient come from the wrong tensor";
    }
    return {};
}

double predicted_gain(const compiled_partition::impl &) {
    return 1;
}

}  // namespace convgrad::onednn
