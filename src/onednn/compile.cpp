// From a partition and the tensors of a compile call to plans.
#include <algorithm>

#include "graph/compiled.hpp"
#include "graph/tensors.hpp"
#include "onednn/behind.hpp"
#include "onednn/choice.hpp"
#include "onednn/compiled.hpp"
#include "onednn/layouts.hpp"
#include "op/message.hpp"

namespace convgrad::onednn {
namespace {

using description_list = std::span<const tensor_description *const>;

/// Place of a tensor in a compile call's list.
std::size_t place_of(description_list list, std::size_t id, std::string_view what) {
    for (std::size_t i = 0; i < list.size(); ++i)
        if (list[i]->id == id) return i;
    throw error(error_code::invalid_argument,
        ops::cat("invalid argument: ", what, " ", id, " of the partition is not given"));
}

bool has_lenient_outputs(op_kind kind) {
    return kind == op_kind::convolution_backward_data
           || kind == op_kind::convolution_backward_weights
           || kind == op_kind::conv_transpose_backward_weights;
}

/// Gathers the library's tensors: each once, with its place in the client's list.
class tensor_collector {
public:
    tensor_collector(description_list given_inputs, description_list given_outputs)
        : given_inputs_(given_inputs), given_outputs_(given_outputs) {}

    stage add(const fused_stage &from) {
        stage made;
        made.node = from.node;
        made.attrs = from.attrs;
        for (const auto &id : from.inputs)
            made.inputs.push_back(id ? add_input(*id) : stage::absent);
        for (const std::size_t id : from.outputs)
            made.outputs.push_back(add_output(id, has_lenient_outputs(made.attrs.kind)));
        return made;
    }

    tensor_list inputs, outputs;
    std::vector<std::size_t> input_places, output_places;

private:
    std::size_t add_input(std::size_t id) {
        const std::size_t place = place_of(given_inputs_, id, "input");
        const auto known = std::find(input_places.begin(), input_places.end(), place);
        if (known != input_places.end())
            return static_cast<std::size_t>(known - input_places.begin());
        inputs.tensors.push_back(input_of(*given_inputs_[place]));
        inputs.open.push_back(given_inputs_[place]->layout == layout_type::any);
        input_places.push_back(place);
        return input_places.size() - 1;
    }

    std::size_t add_output(std::size_t id, bool lenient) {
        const std::size_t place = place_of(given_outputs_, id, "output");
        outputs.tensors.push_back(output_of(*given_outputs_[place], lenient));
        outputs.open.push_back(given_outputs_[place]->layout == layout_type::any);
        output_places.push_back(place);
        return output_places.size() - 1;
    }

    description_list given_inputs_, given_outputs_;
};

/// The tensor to add may be overwritten by the result, where it lies like it and has no other role.
std::vector<inplace_pair> find_inplace(const compiled_partition::impl &made) {
    std::vector<inplace_pair> pairs;
    for (const step &s : made.steps) {
        if (!s.attrs.add) continue;
        const std::size_t at = s.inputs.back();
        const logical_tensor &added = made.inputs[at], &result = made.outputs[s.outputs[0]];
        const bool has_other_role = std::count(s.inputs.begin(), s.inputs.end(), at) > 1;
        if (!has_other_role && result.is_known() && added.shape == result.shape
            && same_layout(*result.shape, added.strides, result.strides))
            pairs.push_back({added.id, result.id});
    }
    return pairs;
}

/// "tiled:avx512 tile 4x14", one for each stage.
std::string kernels_of(const compiled_partition::impl &made) {
    std::string text;
    for (const step &s : made.steps) {
        if (!text.empty()) text += " + ";
        if (s.plan == nullptr)
            text += "planned at execution";
        else
            text +=
                ops::cat(s.plan->algorithm(), ":", s.plan->facts().uses, " ", s.plan->describe());
    }
    std::replace(text.begin(), text.end(), ',', ';');  // fields of the trace end with a comma
    return text;
}

/// "f32:8x3x5x5", "s8:?" where the shape is not known.
std::string describe_tensor(const tensor_description &lt) {
    std::string text = name_of(lt.type) + ":";
    if (lt.ndims < 0) text += '?';
    for (int i = 0; i < std::min(lt.ndims, max_ndims); ++i)
        text += ops::cat(i == 0 ? "" : "x", lt.dims[i]);
    return text;
}

/// Whether it is left open how the data lies; weights may be rearranged once and for all.
bool has_free_layouts(const partition_body &source, description_list inputs) {
    const auto &first = source.stages[0].inputs[0];
    return std::any_of(inputs.begin(), inputs.end(), [&](const tensor_description *lt) {
        return lt->id == first && lt->layout == layout_type::any;
    });
}

/// All descriptions of the call, updated by what was compiled.
std::vector<tensor_description> describe_all(const compiled_partition::impl &made,
    const compiled_body &body, description_list inputs, description_list outputs) {
    std::vector<tensor_description> all;
    for (const tensor_description *lt : inputs) all.push_back(*lt);
    for (const tensor_description *lt : outputs) all.push_back(*lt);
    for (std::size_t i = 0; i < body.input_places.size(); ++i) {
        tensor_description &lt = all[body.input_places[i]];
        lt = strided(lt, made.inputs[i]);
    }
    for (std::size_t i = 0; i < body.output_places.size(); ++i) {
        tensor_description &lt = all[inputs.size() + body.output_places[i]];
        lt = strided(lt, made.outputs[i]);
    }
    return all;
}

}  // namespace

std::shared_ptr<compiled_body> compile(std::shared_ptr<const partition_body> source,
    description_list inputs, description_list outputs) {
    tensor_collector tensors(inputs, outputs);
    std::vector<stage> stages;
    for (const fused_stage &from : source->stages) stages.push_back(tensors.add(from));
    for (const stage &s : stages) choose_layouts(s, tensors.inputs, tensors.outputs);
    const auto made = compile_stages(std::move(stages), tensors.inputs.tensors,
        tensors.outputs.tensors, engine_for(source->settings.fpmath));

    const double gain =
        behind() == nullptr ? 0 : predicted_gain(*made, has_free_layouts(*source, inputs));
    auto body = std::make_shared<compiled_body>(compiled_body{.source = std::move(source),
        .library = compiled_partition(made),
        .input_places = std::move(tensors.input_places),
        .output_places = std::move(tensors.output_places),
        .output_count = outputs.size(),
        .scratch = made->workspace,
        .tensors = {},
        .inplace = find_inplace(*made),
        .gain = gain,
        .kernels = kernels_of(*made),
        .trace_text = {}});
    body->tensors = describe_all(*made, *body, inputs, outputs);
    body->explain({});
    return body;
}

void compiled_body::explain(const std::string &why) {
    std::vector<const tensor_description *> ins, outs;
    const std::size_t input_count = tensors.size() - output_count;
    for (const std::size_t at : input_places) ins.push_back(&tensors[at]);
    for (const std::size_t at : output_places) outs.push_back(&tensors[input_count + at]);
    trace_text = ops::cat("partition:", source->id, ",", source->describe(), ",", kernels,
        why.empty() ? "" : ops::cat(" [", why, "]"), ",", describe_tensors(ins, outs));
}

std::string describe_tensors(description_list inputs, description_list outputs) {
    std::string text;
    for (const tensor_description *lt : inputs)
        text += (text.empty() ? "" : " ") + describe_tensor(*lt);
    text += " ->";
    for (const tensor_description *lt : outputs) text += " " + describe_tensor(*lt);
    return text;
}

}  // namespace convgrad::onednn
