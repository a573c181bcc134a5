// Partitions: compiling them for given tensors.
#include "graph/graph.hpp"
#include "graph/tensors.hpp"
#include "op/guard.hpp"
#include "op/message.hpp"

namespace convgrad {
namespace {

[[noreturn]] void refuse(const partition::impl &p, const std::string &text) {
    throw error(
        error_code::invalid_argument, ops::cat("invalid argument: compiling the partition of op ",
                                          op_label(*p.ops[0]), ": ", text));
}

/// A partition without stages: an op that has not found its place.
[[noreturn]] void refuse_unsupported(const partition::impl &p) {
    throw error(error_code::unsupported,
        ops::cat("unsupported: op ", op_label(*p.ops[0]),
            " computes only behind a Convolution or ConvTranspose whose result nothing else reads: "
            "first BiasAdd (unless the convolution has a bias), then Add, then ReLU, each once at "
            "most, with the convolution's data_format and a tensor to add that fits onto its "
            "result; change the graph, or compute it outside"));
}

std::string ids_of(const std::vector<logical_tensor> &list) {
    std::string text;
    for (const logical_tensor &lt : list) text += ops::cat(text.empty() ? "" : ", ", lt.id);
    return text;
}

/// The caller's tensors in the caller's order, completed from `known`, then those of `known` that
/// the caller left out. `places[i]` is where known[i] ended up.
struct arranged {
    std::vector<logical_tensor> tensors;
    std::vector<std::size_t> places;
};

arranged arrange(const partition::impl &p, std::string_view what,
    std::span<const logical_tensor> given, const std::vector<logical_tensor> &known) {
    arranged result;
    result.places.assign(known.size(), stage::absent);
    for (const logical_tensor &lt : given) {
        std::size_t at = 0;
        while (at < known.size() && known[at].id != lt.id) ++at;
        if (at == known.size())
            refuse(
                p, ops::cat("tensor ", lt.id, " is none of its ", what, "s (", ids_of(known), ")"));
        if (result.places[at] != stage::absent)
            refuse(p, ops::cat(what, " ", lt.id, " is given twice"));
        if (lt.type != data_type::undef && lt.type != known[at].type)
            refuse(p, ops::cat(what, " ", lt.id, " is ", describe(lt), " here, but ",
                          describe(known[at]), " in the graph; the type must stay the same"));
        result.places[at] = result.tensors.size();
        result.tensors.push_back(lt);
        fill_in(result.tensors.back(), known[at]);
    }
    for (std::size_t i = 0; i < known.size(); ++i) {
        if (result.places[i] != stage::absent) continue;
        result.places[i] = result.tensors.size();
        result.tensors.push_back(known[i]);
    }
    return result;
}

}  // namespace

std::size_t partition::id() const noexcept {
    return impl_->id;
}

std::vector<std::size_t> partition::ops() const {
    return guarded("partition::ops", [&] {
        std::vector<std::size_t> ids;
        for (const auto &node : impl_->ops) ids.push_back(node->id());
        return ids;
    });
}

bool partition::is_supported() const noexcept {
    return !impl_->stages.empty();
}

const std::vector<logical_tensor> &partition::inputs() const noexcept {
    return impl_->inputs;
}

const std::vector<logical_tensor> &partition::outputs() const noexcept {
    return impl_->outputs;
}

compiled_partition partition::compile(
    list_view<logical_tensor> inputs, list_view<logical_tensor> outputs, const engine &on) const {
    return guarded("partition::compile", [&] {
        if (!is_supported()) refuse_unsupported(*impl_);
        arranged ins = arrange(*impl_, "input", inputs, impl_->inputs);
        arranged outs = arrange(*impl_, "output", outputs, impl_->declared_outputs);
        std::vector<stage> stages = impl_->stages;
        for (stage &s : stages) {
            for (std::size_t &at : s.inputs)
                if (at != stage::absent) at = ins.places[at];
            for (std::size_t &at : s.outputs) at = outs.places[at];
        }
        return compiled_partition(
            compile_stages(std::move(stages), std::move(ins.tensors), std::move(outs.tensors), on));
    });
}

compiled_partition partition::compile(const engine &on) const {
    return compile({}, {}, on);
}

}  // namespace convgrad
