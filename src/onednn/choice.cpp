#include "onednn/choice.hpp"

#include <algorithm>
#include <array>

#include "conv/taps.hpp"
#include "onednn/environment.hpp"

namespace convgrad::onednn {
namespace {

const dims *list_of(const client_op &op, graph_attribute name) {
    const auto found = op.attributes.find(name);
    return found == op.attributes.end() ? nullptr : std::get_if<dims>(&found->second);
}

/// What oneDNN reaches on one nominal core, in 10⁹ operations (two for each multiply-add inside the
/// input) a second: forward, data gradient and weights gradient, with channels last and in planes.
/// Medians of docs/measured/layers.csv.
struct known_rates {
    std::array<double, 3> last, planes;
};
struct rates_of_type {
    known_rates dense, few_channels, groups_of_8, groups_of_4, depthwise;
};
constexpr rates_of_type f32_rates = {
    .dense = {{112, 112, 103}, {104, 101, 89}},
    .few_channels = {{110, 42, 95}, {86, 53, 82}},
    .groups_of_8 = {{84, 87, 53}, {46, 47, 40}},
    .groups_of_4 = {{33, 40, 17}, {23, 26, 9}},
    .depthwise = {{62, 59, 53}, {28, 25, 9}},
};
constexpr rates_of_type bf16_rates = {
    .dense = {{227, 226, 183}, {186, 185, 160}},
    .few_channels = {{169, 46, 146}, {97, 71, 70}},
    .groups_of_8 = {{146, 150, 72}, {81, 87, 4}},
    .groups_of_4 = {{66, 63, 17}, {42, 43, 5}},
    .depthwise = {{63, 60, 77}, {21, 17, 10}},
};

/// Null where nothing is known: other types, other instructions.
const rates_of_type *rates_for(const conv::problem &p, std::string_view uses) {
    const bool vectors = uses == "avx2" || uses == "avx512" || uses == "avx512_bf16";
    if (p.what == conv::pass::backward_bias || !vectors) return nullptr;
    if (p.type == data_type::f32) return &f32_rates;
    return p.type == data_type::bf16 && uses != "avx2" ? &bf16_rates : nullptr;
}

const known_rates &rates_of_class(const rates_of_type &rates, const conv::problem &p) {
    const dim least = std::min(p.ic, p.oc);
    if (p.ic == 1 && p.oc == 1 && p.groups > 1) return rates.depthwise;
    if (p.groups > 1 && least < 8) return rates.groups_of_4;
    if (p.groups > 1 && least < 32) return rates.groups_of_8;
    return least < 16 ? rates.few_channels : rates.dense;
}

/// Seconds of a nominal core that oneDNN takes; 0: not known.
double seconds_there(const conv::problem &p, const engines::plan &here, bool free_layouts) {
    const rates_of_type *rates = rates_for(p, here.facts().uses);
    if (rates == nullptr) return 0;
    const known_rates &known = rates_of_class(*rates, p);
    const bool last = free_layouts || (p.ic * p.groups > 1 ? p.src.c : p.dst.c) == 1;
    const double rate = (last ? known.last : known.planes)[static_cast<std::size_t>(p.what)];
    double operations = 2e-9 * static_cast<double>(p.mb) * static_cast<double>(p.groups)
                        * static_cast<double>(p.ic) * static_cast<double>(p.oc);
    for (const conv::axis &a : p.x) operations *= conv::count_taps(a).pairs;
    return operations / rate;
}

conv::problem problem_of(const step &s, const compiled_partition::impl &ours) {
    return ops::lower(s.attrs, pick(ours.inputs, s.inputs), pick(ours.outputs, s.outputs));
}

bool is_empty_list(const client_op &op, graph_attribute name) {
    const dims *list = list_of(op, name);
    return list != nullptr && list->empty();
}

}  // namespace

takeover policy() {
    static constexpr std::string_view words[] = {"always", "faster", "correct"};
    static const auto chosen =
        static_cast<takeover>(word_from_environment("CONVGRAD_ONEDNN_POLICY", words, 1));
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

double predicted_gain(const compiled_partition::impl &ours, bool free_layouts) {
    double here = 0, there = 0;
    for (const step &s : ours.steps) {
        if (s.plan == nullptr) return 0;
        const double seconds = seconds_there(problem_of(s, ours), *s.plan, free_layouts);
        if (seconds == 0) return 0;
        here += s.plan->facts().seconds;
        there += seconds;
    }
    return here > 0 ? there / here : 0;
}

}  // namespace convgrad::onednn
