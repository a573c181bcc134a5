// The C interface of oneDNN Graph, declared here as its documentation has it and looked up at run
// time in the drop-in.
#include <dlfcn.h>

#include <stdexcept>

#include "trial.hpp"

namespace hunt {
namespace {

constexpr int most_dims = 12;
struct c_logical_tensor {
    std::size_t id;
    int ndims;
    std::int64_t dims[most_dims];
    int type, property, layout;
    std::int64_t strides[most_dims];
};

using object = void *;
template <typename... T>
using function = int (*)(T...);

struct interface {
    function<object *, int, std::size_t> engine_create;
    function<object *, object, unsigned> stream_create;
    function<object> stream_wait, stream_destroy;
    function<object *, std::size_t, int, const char *> op_create;
    function<object> op_destroy, graph_destroy, partition_destroy, compiled_destroy, tensor_destroy,
        graph_finalize;
    function<object, const c_logical_tensor *> add_input, add_output;
    function<object, int, const std::int64_t *, std::size_t> set_s64;
    function<object, int, const char *, std::size_t> set_str;
    function<object *, int> graph_create;
    function<object, object> add_op;
    function<object, int> graph_filter;
    function<object, std::size_t *> partition_num;
    function<object, std::size_t, object *> get_partitions;
    function<object *, object> compiled_create;
    function<object, object, std::size_t, const c_logical_tensor **, std::size_t,
        const c_logical_tensor **, object>
        compile;
    function<object *, const c_logical_tensor *, object, void *> tensor_create;
    function<object, object, std::size_t, const object *, std::size_t, const object *> execute;
    object engine = nullptr;
};
interface c;

void check(int status, const char *what) {
    if (status != 0)
        throw std::runtime_error(std::string(what) + ": status " + std::to_string(status));
}

/// Destroyed in any case.
class owner {
public:
    explicit owner(function<object> destroy) : destroy_(destroy) {}
    ~owner() {
        if (held != nullptr) destroy_(held);
    }
    owner(owner &&other) noexcept : held(other.held), destroy_(other.destroy_) {
        other.held = nullptr;
    }
    owner(const owner &) = delete;
    owner &operator=(const owner &) = delete;
    object held = nullptr;

private:
    function<object> destroy_;
};

c_logical_tensor described(std::size_t id, data_type type, const dims &shape, dims strides) {
    c_logical_tensor lt{};
    lt.id = id;
    lt.ndims = static_cast<int>(shape.size());
    lt.type = type == data_type::f32    ? 3
              : type == data_type::bf16 ? 2
              : type == data_type::f16  ? 1
                                        : 4;
    lt.layout = 2;  // strided
    if (strides.empty()) {
        strides.assign(shape.size(), 1);
        for (std::size_t i = shape.size(); i-- > 1;)
            strides[i - 1] = strides[i] * std::max<dim>(shape[i], 1);
    }
    for (std::size_t i = 0; i < shape.size(); ++i) {
        lt.dims[i] = shape[i];
        lt.strides[i] = strides[i];
    }
    return lt;
}

enum attribute {
    groups = 0x32,
    dilations = 0x41,
    output_padding = 0x45,
    pads_begin = 0x46,
    pads_end = 0x47,
    strides = 0x4b,
    auto_pad = 0x81,
    data_format = 0x83,
    weights_format = 0x87
};
enum other_op { op_add = 2, op_bias_add_backward = 9, op_relu = 58 };

class client {
public:
    client(trial &t, draw &random) : t_(t), random_(random) {}

    void run() {
        owner graph(c.graph_destroy);
        check(c.graph_create(&graph.held, 1), "graph_create");
        build(graph.held);
        check(c.graph_finalize(graph.held), "finalize");
        check(c.graph_filter(graph.held, 1), "filter");  // by the policy fusion
        std::size_t count = 0;
        check(c.partition_num(graph.held, &count), "partition_num");
        if (count != 1) throw std::runtime_error("not one partition");
        owner partition(c.partition_destroy), compiled(c.compiled_destroy),
            stream(c.stream_destroy);
        check(c.get_partitions(graph.held, 1, &partition.held), "get_partitions");
        check(c.compiled_create(&compiled.held, partition.held), "compiled_partition_create");
        std::vector<const c_logical_tensor *> in, out;
        for (auto &[lt, data] : inputs_) in.push_back(&lt);
        for (auto &[lt, data] : outputs_) out.push_back(&lt);
        check(c.compile(partition.held, compiled.held, in.size(), in.data(), out.size(), out.data(),
                  c.engine),
            "compile");
        check(c.stream_create(&stream.held, c.engine, 1), "stream_create");
        std::vector<owner> keep;
        const auto made = [&](std::vector<std::pair<c_logical_tensor, void *>> &list) {
            std::vector<object> tensors;
            for (auto &[lt, data] : list) {
                keep.emplace_back(c.tensor_destroy);
                check(c.tensor_create(&keep.back().held, &lt, c.engine, data), "tensor_create");
                tensors.push_back(keep.back().held);
            }
            return tensors;
        };
        const auto in_tensors = made(inputs_), out_tensors = made(outputs_);
        check(c.execute(compiled.held, stream.held, in_tensors.size(), in_tensors.data(),
                  out_tensors.size(), out_tensors.data()),
            "execute");
        check(c.stream_wait(stream.held), "stream_wait");
    }

private:
    c_logical_tensor input(memory &m) {
        const c_logical_tensor lt = described(++ids_, m.type(), m.shape(), m.strides());
        inputs_.emplace_back(lt, m.data());
        return lt;
    }
    c_logical_tensor result(memory &m) {
        const c_logical_tensor lt = described(++ids_, m.type(), m.shape(), m.strides());
        outputs_.emplace_back(lt, m.data());
        return lt;
    }

    void add(object graph, int kind, const std::vector<c_logical_tensor> &in,
        const c_logical_tensor &out) {
        owner op(c.op_destroy);
        check(c.op_create(&op.held, ++ops_, kind, "hunted"), "op_create");
        for (const c_logical_tensor &lt : in) check(c.add_input(op.held, &lt), "add_input");
        check(c.add_output(op.held, &out), "add_output");
        if (kind >= 13 && kind <= 18) set_attributes(op.held);
        if (kind == op_bias_add_backward) set_text(op.held, data_format, t_.p.data_format());
        check(c.add_op(graph, op.held), "add_op");
    }

    void set_attributes(object op) {
        const problem &p = t_.p;
        const auto list = [&](int name, dim axis::*member) {
            const dims v = p.list(member);
            check(c.set_s64(op, name, v.data(), v.size()), "set_attr_s64");
        };
        list(strides, &axis::stride);
        list(dilations, &axis::dilation);
        list(pads_begin, &axis::pad_begin);
        list(pads_end, &axis::pad_end);
        if (p.has_output_padding()) list(output_padding, &axis::output_padding);
        check(c.set_s64(op, groups, &p.groups, 1), "set_attr_s64");
        set_text(op, auto_pad, p.auto_pad);
        set_text(op, data_format, p.data_format());
        set_text(op, weights_format, p.weights_format());
    }

    static void set_text(object op, int name, const std::string &value) {
        check(c.set_str(op, name, value.c_str(), value.size()), "set_attr_str");
    }

    void build(object graph) {
        const problem &p = t_.p;
        const int layer = p.transposed ? 16 : 13;
        if (p.what == gradient::none) return build_layer(graph, layer);
        const c_logical_tensor diff_dst = input(t_.diff_dst);
        std::size_t next = 0;
        if (p.what != gradient::weights)
            add(graph, layer + 1, {diff_dst, input(t_.weights)}, result(t_.outputs[next++].where));
        if (p.what == gradient::data) return;
        add(graph, layer + 2, {input(t_.src), diff_dst}, result(t_.outputs[next++].where));
        if (p.diff_bias)
            add(graph, op_bias_add_backward, {diff_dst}, result(t_.outputs[next].where));
    }

    void build_layer(object graph, int kind) {
        const problem &p = t_.p;
        memory &dst = t_.outputs[0].where;
        std::vector<c_logical_tensor> in = {input(t_.src), input(t_.weights)};
        if (p.bias) in.push_back(input(t_.bias));
        const auto between = [&] { return described(++ids_, p.type, dst.shape(), {}); };
        c_logical_tensor now = p.add || p.relu ? between() : result(dst);
        add(graph, kind, in, now);
        if (p.add) {
            const c_logical_tensor other = p.add_is_src ? in[0] : input(t_.addend());
            const c_logical_tensor sum = p.relu ? between() : result(dst);
            if (random_.percent(50))
                add(graph, op_add, {now, other}, sum);
            else
                add(graph, op_add, {other, now}, sum);
            now = sum;
        }
        if (p.relu) add(graph, op_relu, {now}, result(dst));
    }

    trial &t_;
    draw &random_;
    std::size_t ids_ = 0, ops_ = 0;
    std::vector<std::pair<c_logical_tensor, void *>> inputs_, outputs_;
};

}  // namespace

bool open_drop_in(const char *library) {
    void *file = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (file == nullptr) return false;
    bool all = true;
    const auto find = [&](auto &to, const char *name) {
        to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(dlsym(file, name));
        all = all && to != nullptr;
    };
    find(c.engine_create, "dnnl_engine_create");
    find(c.stream_create, "dnnl_stream_create");
    find(c.stream_wait, "dnnl_stream_wait");
    find(c.stream_destroy, "dnnl_stream_destroy");
    find(c.op_create, "dnnl_graph_op_create");
    find(c.op_destroy, "dnnl_graph_op_destroy");
    find(c.graph_destroy, "dnnl_graph_graph_destroy");
    find(c.partition_destroy, "dnnl_graph_partition_destroy");
    find(c.compiled_destroy, "dnnl_graph_compiled_partition_destroy");
    find(c.tensor_destroy, "dnnl_graph_tensor_destroy");
    find(c.graph_finalize, "dnnl_graph_graph_finalize");
    find(c.add_input, "dnnl_graph_op_add_input");
    find(c.add_output, "dnnl_graph_op_add_output");
    find(c.set_s64, "dnnl_graph_op_set_attr_s64");
    find(c.set_str, "dnnl_graph_op_set_attr_str");
    find(c.graph_create, "dnnl_graph_graph_create");
    find(c.add_op, "dnnl_graph_add_op");
    find(c.graph_filter, "dnnl_graph_graph_filter");
    find(c.partition_num, "dnnl_graph_graph_get_partition_num");
    find(c.get_partitions, "dnnl_graph_graph_get_partitions");
    find(c.compiled_create, "dnnl_graph_compiled_partition_create");
    find(c.compile, "dnnl_graph_partition_compile");
    find(c.tensor_create, "dnnl_graph_tensor_create");
    find(c.execute, "dnnl_graph_compiled_partition_execute");
    return all && c.engine_create(&c.engine, 1, 0) == 0;
}

void call_drop_in(trial &t, draw &random) {
    client(t, random).run();
}

}  // namespace hunt
