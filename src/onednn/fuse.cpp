// Which ops run together.
//
// Two patterns: a forward op followed by BiasAdd, Add and ReLU (each may be missing, the order is
// this one), and gradients that read one diff_dst. A chain never closes a cycle, because nothing
// but its next op reads what an op of it writes; gradients may, and are kept apart then.
#include <algorithm>
#include <atomic>
#include <numeric>

#include "onednn/graph.hpp"
#include "onednn/partition.hpp"
#include "op/schema.hpp"

namespace convgrad::onednn {
namespace {

using kind = graph_op_kind;

bool is_forward(kind k) {
    return k == kind::convolution || k == kind::conv_transpose;
}

/// Whether a bias op means the channels of `main`. One that does not say is taken to, as oneDNN
/// does: its clients leave the attribute out.
bool has_format_of(const ops::parsed_attributes &main, const client_op &bias) {
    const std::string_view format = main.data_format == ops::data_format::ncx ? "NCX" : "NXC";
    return ops::equal_ignoring_case(bias.text(graph_attribute::data_format, format), format);
}

/// Whether `other` may be broadcast to `result`, as far as the graph tells.
bool may_broadcast(
    const tensor_description &result, const tensor_description &other, bool numpy_rules) {
    if (result.ndims <= 0 || other.ndims < 0) return true;
    if (numpy_rules ? other.ndims > result.ndims : other.ndims != result.ndims) return false;
    for (int i = 1; i <= other.ndims; ++i) {
        const dim theirs = other.dims[other.ndims - i], ours = result.dims[result.ndims - i];
        if (theirs < 0 || ours < 0 || theirs == ours) continue;
        if (!numpy_rules || theirs != 1) return false;
    }
    return true;
}

/// A forward op and what follows it, while it grows.
struct chain {
    std::vector<std::size_t> members;
    fused_stage stage;
    const tensor_description *result;  // what the last member writes
    bool has_bias = false;

    /// Takes `next`, the only reader of `result`, if it fits.
    bool take(std::size_t at, const client_op &next) {
        if (next.outputs.size() != 1 || next.outputs[0].type != result->type) return false;
        for (const tensor_description &lt : next.inputs)
            if (lt.type != result->type || lt.property == property_type::host_scalar) return false;
        const bool fits = next.kind == kind::bias_add ? take_bias(next)
                          : next.kind == kind::add    ? take_add(next)
                          : next.kind == kind::relu   ? take_relu(next)
                                                      : false;
        if (!fits) return false;
        members.push_back(at);
        result = &next.outputs[0];
        stage.outputs = {result->id};
        return true;
    }

private:
    ops::parsed_attributes &attrs() { return stage.main.attrs; }

    bool take_bias(const client_op &next) {
        if (has_bias || attrs().add || attrs().relu || next.inputs.size() != 2
            || next.inputs[0].id != result->id || next.inputs[1].id == result->id
            || !has_format_of(attrs(), next))
            return false;
        has_bias = true;
        stage.inputs.emplace_back(next.inputs[1].id);
        return true;
    }

    bool take_add(const client_op &next) {
        if (attrs().add || attrs().relu || next.inputs.size() != 2) return false;
        const std::size_t mine = next.inputs[0].id == result->id ? 0 : 1;
        const tensor_description &other = next.inputs[1 - mine];
        const bool numpy_rules = next.text(graph_attribute::auto_broadcast, "numpy") == "numpy";
        if (other.id == result->id || !may_broadcast(*result, other, numpy_rules)) return false;
        attrs().add = true;
        if (!has_bias) stage.inputs.emplace_back(std::nullopt);
        stage.inputs.emplace_back(other.id);
        return true;
    }

    bool take_relu(const client_op &next) {
        if (attrs().relu || next.inputs.size() != 1) return false;
        attrs().relu = true;
        return true;
    }
};

fused_stage alone(const graph_op &op) {
    fused_stage stage;
    stage.main = *op.family;
    for (const tensor_description &lt : op.given->inputs) stage.inputs.emplace_back(lt.id);
    for (const tensor_description &lt : op.given->outputs) stage.outputs.push_back(lt.id);
    return stage;
}

/// The grouping while it is found: group_of[op], and the stages of each group.
class grouping {
public:
    grouping(const std::vector<graph_op> &ops, const graph_edges &edges)
        : ops_(ops), edges_(edges), group_of_(ops.size()), stages_(ops.size()) {
        std::iota(group_of_.begin(), group_of_.end(), std::size_t{0});
        for (std::size_t at = 0; at < ops.size(); ++at)
            if (ops[at].family) stages_[at] = {alone(ops[at])};
    }

    void fuse_chains() {
        for (std::size_t at = 0; at < ops_.size(); ++at) {
            if (!is_forward(ops_[at].given->kind)) continue;
            chain found = make_chain(at);
            for (const std::size_t member : found.members) group_of_[member] = at;
            stages_[at] = {std::move(found.stage)};
        }
    }

    void fuse_gradients() {
        for (std::size_t at = 0; at < ops_.size(); ++at) {
            const kind k = ops_[at].given->kind;
            if (k == kind::convolution_backward_weights
                || k == kind::conv_transpose_backward_weights)
                fuse_with_weights_gradient(at);
        }
    }

    /// In topological order: positions of the ops of each partition, and its stages.
    struct group {
        std::vector<std::size_t> members;
        std::vector<fused_stage> stages;
    };
    [[nodiscard]] std::vector<group> result() const {
        const auto [dense, count] = dense_groups(group_of_);
        std::vector<group> groups(count);
        std::vector<std::size_t> each(ops_.size());
        std::iota(each.begin(), each.end(), std::size_t{0});
        for (const std::size_t at : order_groups(ops_, edges_, each, ops_.size()))
            groups[dense[at]].members.push_back(at);
        for (std::size_t at = 0; at < ops_.size(); ++at)
            if (group_of_[at] == at) groups[dense[at]].stages = stages_[at];
        std::vector<group> ordered;
        for (const std::size_t g : order_groups(ops_, edges_, dense, count))
            ordered.push_back(std::move(groups[g]));
        return ordered;
    }

private:
    chain make_chain(std::size_t start) {
        const client_op &first = *ops_[start].given;
        chain made{{start}, alone(ops_[start]), first.outputs.data(), first.inputs.size() > 2};
        for (;;) {
            const auto &readers = edges_.consumers(made.result->id);
            // The reader may belong to another chain: an Add of two convolutions.
            if (readers.size() != 1 || group_of_[readers[0]] != readers[0]
                || !made.take(readers[0], *ops_[readers[0]].given))
                return made;
        }
    }

    static std::pair<std::vector<std::size_t>, std::size_t> dense_groups(
        const std::vector<std::size_t> &group_of) {
        std::vector<std::size_t> number(group_of.size(), graph_edges::none), dense;
        std::size_t count = 0;
        for (const std::size_t group : group_of) {
            if (number[group] == graph_edges::none) number[group] = count++;
            dense.push_back(number[group]);
        }
        return {std::move(dense), count};
    }

    /// Puts `other` into the group of `at`, unless that closes a cycle.
    bool join(std::size_t at, std::size_t other) {
        std::vector<std::size_t> tried = group_of_;
        tried[other] = group_of_[at];
        const auto [dense, count] = dense_groups(tried);
        // Members must not feed each other either: they run as one.
        for (std::size_t member = 0; member < ops_.size(); ++member)
            if (tried[member] == tried[at])
                for (const tensor_description &lt : ops_[member].given->outputs)
                    for (const std::size_t reader : edges_.consumers(lt.id))
                        if (tried[reader] == tried[at]) return false;
        if (order_groups(ops_, edges_, dense, count).size() != count) return false;
        group_of_ = std::move(tried);
        return true;
    }

    void fuse_with_weights_gradient(std::size_t at) {
        const std::size_t diff_dst = ops_[at].given->inputs[1].id;
        bool has_data = false, has_bias = false;
        for (const std::size_t other : edges_.consumers(diff_dst)) {
            if (group_of_[other] != other) continue;
            if (!has_data && is_data_gradient(at, other) && join(at, other)) {
                has_data = true;
                stages_[at].insert(stages_[at].begin(), alone(ops_[other]));
            } else if (!has_bias && is_bias_gradient(at, other) && join(at, other)) {
                has_bias = true;
                stages_[at].back().outputs.push_back(ops_[other].given->outputs[0].id);
            }
        }
    }

    [[nodiscard]] bool is_data_gradient(std::size_t at, std::size_t other) const {
        const client_op &weights = *ops_[at].given, &data = *ops_[other].given;
        const kind wanted = weights.kind == kind::convolution_backward_weights
                                ? kind::convolution_backward_data
                                : kind::conv_transpose_backward_data;
        if (data.kind != wanted || data.inputs[0].id != weights.inputs[1].id) return false;
        const ops::parsed_attributes &a = ops_[at].family->attrs, &b = ops_[other].family->attrs;
        return a.strides == b.strides && a.pads_begin == b.pads_begin && a.pads_end == b.pads_end
               && a.dilations == b.dilations && a.auto_pad == b.auto_pad && a.groups == b.groups
               && a.data_format == b.data_format && a.weights_format == b.weights_format
               && data.inputs[0].type == weights.inputs[0].type;
    }

    [[nodiscard]] bool is_bias_gradient(std::size_t at, std::size_t other) const {
        const client_op &bias = *ops_[other].given;
        return bias.kind == kind::bias_add_backward && bias.inputs.size() == 1
               && bias.outputs.size() == 1 && bias.inputs[0].type == bias.outputs[0].type
               && has_format_of(ops_[at].family->attrs, bias);
    }

    const std::vector<graph_op> &ops_;
    const graph_edges &edges_;
    std::vector<std::size_t> group_of_;             // named by its first op
    std::vector<std::vector<fused_stage>> stages_;  // of the group with this name
};

void add_once(std::vector<tensor_description> &list, const tensor_description &lt) {
    const auto same = [&](const tensor_description &other) { return other.id == lt.id; };
    if (std::none_of(list.begin(), list.end(), same)) list.push_back(lt);
}

/// Tensors that come from outside, and those that are read outside or by nobody.
void find_ports(partition_body &body, const std::vector<graph_op> &ops, const graph_edges &edges,
    const std::vector<std::size_t> &members) {
    const auto inside = [&](std::size_t at) {
        return std::find(members.begin(), members.end(), at) != members.end();
    };
    for (const std::size_t at : members) {
        for (const tensor_description &lt : ops[at].given->inputs)
            if (!inside(edges.producer(lt.id))) add_once(body.inputs, lt);
        for (const tensor_description &lt : ops[at].given->outputs) {
            const auto &readers = edges.consumers(lt.id);
            if (readers.empty() || !std::all_of(readers.begin(), readers.end(), inside))
                add_once(body.outputs, lt);
        }
    }
}

}  // namespace

std::size_t next_partition_id() {
    static std::atomic<std::size_t> next = 0;
    return next++;
}

std::string partition_body::describe() const {
    std::string text;
    for (const auto &op : ops) {
        if (!text.empty()) text += '+';
        text += name_of(op->kind) + ":" + op->name;
    }
    return text;
}

std::vector<std::shared_ptr<const partition_body>> make_partitions(
    const std::vector<graph_op> &ops, engine_kind_value engine, fpmath_mode fpmath, bool fuse) {
    const graph_edges edges(ops);
    grouping groups(ops, edges);
    if (fuse) {
        groups.fuse_chains();
        groups.fuse_gradients();
    }
    std::vector<std::shared_ptr<const partition_body>> made;
    for (grouping::group &group : groups.result()) {
        auto body = std::make_shared<partition_body>();
        body->id = next_partition_id();
        body->engine = engine;
        body->fpmath = fpmath;
        for (const std::size_t at : group.members) body->ops.push_back(ops[at].given);
        find_ports(*body, ops, edges, group.members);
        if (engine == engine_kind_value::cpu) body->stages = std::move(group.stages);
        made.push_back(std::move(body));
    }
    return made;
}

}  // namespace convgrad::onednn
