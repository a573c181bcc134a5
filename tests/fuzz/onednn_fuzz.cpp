// The drop-in for oneDNN Graph under a client whose calls are bytes: handles in slots, some of them
// null, arguments of any value. The answer is a status; no call may break the program.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>

#include "fuzz/input.hpp"
#include "fuzz/layer.hpp"
#include "fuzz/onednn_api.hpp"

namespace convgrad::fuzz {
namespace {

constexpr std::size_t largest_buffer = 1U << 18U;

element_type to_client(data_type type) {
    return type == data_type::bf16  ? element_type::bf16
           : type == data_type::f16 ? element_type::f16
                                    : element_type::f32;
}

/// Finite numbers of every type, not all alike.
void fill(std::byte *data, std::size_t bytes) {
    for (std::size_t i = 0; i + 2 <= bytes; i += 2) {
        const auto word = static_cast<std::uint16_t>(0x3c00 + i * 37 % 128);
        std::memcpy(data + i, &word, 2);
    }
}

class client {
public:
    explicit client(input &in) : in_(in) {
        draw_layer(in_, layer_);
        while (in_.chance(8)) spoil(in_, layer_);
        dnnl_engine_create(&engine_, engine_kind_value::cpu, 0);
        dnnl_stream_create(&stream_, engine_, 1);
        for (tensor_description &lt : lts_) lt = describe();
    }
    ~client() {
        for (client_tensor *t : tensors_) dnnl_graph_tensor_destroy(t);
        for (client_compiled_partition *c : compiled_) dnnl_graph_compiled_partition_destroy(c);
        for (client_partition *p : partitions_) dnnl_graph_partition_destroy(p);
        for (client_op *o : ops_) dnnl_graph_op_destroy(o);
        for (client_graph *g : graphs_) dnnl_graph_graph_destroy(g);
        dnnl_stream_destroy(stream_);
        dnnl_engine_destroy(engine_);
    }
    client(const client &) = delete;
    client &operator=(const client &) = delete;

    void step() {
        switch (in_.byte() % 16) {
        case 0:
        case 1:
            return add_plausible_op();
        case 2:
            return add_other_op();
        case 3:
            return set_attribute(slot(ops_));
        case 4:
            return change_description();
        case 5:
        case 6:
            return finish_graph();
        case 7:
        case 8:
        case 9:
            return compile();
        case 10:
            return execute_garbage();
        case 11:
            return make_tensor();
        case 12:
            return ask();
        case 13:
            return destroy();
        case 14:
            return change_settings();
        default:
            return change_graph();
        }
    }

private:
    template <typename T, std::size_t n>
    T &slot(std::array<T, n> &slots) {
        return slots[in_.byte() % n];
    }

    template <typename Enumeration>
    Enumeration any_of(Enumeration usual) {
        return in_.chance(16) ? static_cast<Enumeration>(in_.number()) : usual;
    }

    tensor_description describe(std::size_t id, const dims &shape) {
        tensor_description lt{};
        const auto rank = static_cast<std::int32_t>(shape.size());
        const element_type type = any_of(to_client(layer_.type));
        dims strides = in_.chance(8) ? in_.numbers(12) : dims{};
        dims padded = shape;
        padded.resize(12, 1);
        const int how = in_.byte() % 8;
        status done{};
        if (how == 7)
            done = dnnl_graph_logical_tensor_init(
                &lt, id, type, any_of(rank), any_of(layout_type::strided), property_type::variable);
        else if (!strides.empty())
            done = dnnl_graph_logical_tensor_init_with_strides(&lt, id, type, rank, padded.data(),
                strides.data(), any_of(property_type::variable));
        else
            done = dnnl_graph_logical_tensor_init_with_dims(&lt, id, type, rank, padded.data(),
                how == 6 ? layout_type::any : layout_type::strided,
                any_of(property_type::variable));
        if (done != status::success) lt = {};
        return lt;
    }
    tensor_description describe() { return describe(in_.byte() % 8, in_.numbers(in_.byte() % 6)); }

    void set_list(client_op *op, graph_attribute name, const dims &values) {
        dnnl_graph_op_set_attr_s64(op, name, values.data(), values.size());
    }
    void set_text(client_op *op, graph_attribute name, const std::string &value) {
        dnnl_graph_op_set_attr_str(op, name, value.c_str(), value.size());
    }

    void add_to_graph(client_op *op) {
        client_op *&place = slot(ops_);
        dnnl_graph_op_destroy(place);
        place = op;
        client_graph *&graph = graphs_[in_.byte() % 2];
        if (graph == nullptr) dnnl_graph_graph_create(&graph, engine_kind_value::cpu);
        if (!in_.chance(8)) dnnl_graph_add_op(graph, op);
        if (in_.chance(8)) {
            client_partition *&alone = slot(partitions_);
            dnnl_graph_partition_destroy(std::exchange(alone, nullptr));
            dnnl_graph_partition_create_with_op(&alone, op, any_of(engine_kind_value::cpu));
        }
    }

    /// An op of the family on the layer's tensors.
    void add_plausible_op() {
        const attributes &a = layer_.attrs;
        const int which = in_.byte() % 3;
        client_op *op = nullptr;
        dnnl_graph_op_create(
            &op, next_op_++, static_cast<graph_op_kind>(layer_.kind(which)), in_.text(4).c_str());
        set_list(op, graph_attribute::strides, a.strides);
        set_list(op, graph_attribute::pads_begin, a.pads_begin);
        set_list(op, graph_attribute::pads_end, a.pads_end);
        set_list(op, graph_attribute::dilations, a.dilations);
        if (!a.output_padding.empty())
            set_list(op, graph_attribute::output_padding, a.output_padding);
        set_text(op, graph_attribute::auto_pad, layer_.auto_pad);
        set_text(op, graph_attribute::data_format, layer_.data_format);
        set_text(op, graph_attribute::weights_format, layer_.weights_format);
        dnnl_graph_op_set_attr_s64(op, graph_attribute::groups, &a.groups, 0);
        if (in_.chance(4)) set_attribute(op);
        const tensor_description src = describe(0, layer_.src),
                                 weights = describe(1, layer_.weights);
        const tensor_description dst = describe(2, layer_.dst);
        dnnl_graph_op_add_input(op, which == 1 ? &dst : &src);
        dnnl_graph_op_add_input(op, which == 2 ? &dst : &weights);
        if (which == 0 && in_.chance(4)) {
            const tensor_description bias = describe(3, {layer_.channels_out});
            dnnl_graph_op_add_input(op, &bias);
        }
        const tensor_description out = which == 0   ? dst
                                       : which == 1 ? describe(4, layer_.src)
                                                    : describe(5, layer_.weights);
        dnnl_graph_op_add_output(op, &out);
        add_to_graph(op);
    }

    /// An op of another kind behind or beside the layer: what fusion looks at.
    void add_other_op() {
        static constexpr graph_op_kind kinds[] = {graph_op_kind::bias_add, graph_op_kind::relu,
            graph_op_kind::add, graph_op_kind::bias_add_backward, graph_op_kind::end,
            graph_op_kind::wildcard, graph_op_kind::matmul};
        client_op *op = nullptr;
        dnnl_graph_op_create(&op, next_op_++, any_of(in_.pick(kinds)), "other");
        for (auto inputs = in_.between(1, 3); inputs > 0; --inputs) {
            const std::size_t id = in_.byte() % 9;
            const bool vector = in_.chance(2);
            const tensor_description lt =
                describe(id, vector ? dims{layer_.channels_out} : layer_.dst);
            dnnl_graph_op_add_input(op, &lt);
        }
        const tensor_description out = describe(6 + std::size_t(in_.byte() % 3), layer_.dst);
        dnnl_graph_op_add_output(op, &out);
        if (in_.chance(2)) set_text(op, graph_attribute::data_format, layer_.data_format);
        if (in_.chance(4)) set_attribute(op);
        add_to_graph(op);
    }

    void set_attribute(client_op *op) {
        const auto name = static_cast<graph_attribute>(in_.byte());
        const dims list = in_.numbers(in_.byte() % 6);
        const std::uint8_t flag = in_.byte() % 2;
        const float real = 0.5F;
        const std::string text = in_.text(8);
        switch (in_.byte() % 4) {
        case 0:
            set_list(op, name, list);
            break;
        case 1:
            set_text(op, name, text);
            break;
        case 2:
            dnnl_graph_op_set_attr_bool(op, name, &flag, 1);
            break;
        default:
            dnnl_graph_op_set_attr_f32(op, name, &real, in_.byte() % 2);
        }
    }

    /// Fields that a client wrote itself.
    void change_description() {
        tensor_description &lt = slot(lts_);
        lt = in_.chance(2) ? describe(in_.byte() % 9, layer_.dst) : describe();
        switch (in_.byte() % 6) {
        case 0:
            lt.ndims = static_cast<int>(in_.number());
            break;
        case 1:
            lt.dims[in_.byte() % 12] = in_.number();
            break;
        case 2:
            lt.strides[in_.byte() % 12] = in_.number();
            break;
        case 3:
            lt.type = static_cast<element_type>(in_.number());
            break;
        case 4:
            lt.layout = static_cast<layout_type>(in_.byte() % 6);
            break;
        default:
            lt.property = static_cast<property_type>(in_.byte() % 6);
        }
        std::size_t size = 0;
        std::uint8_t equal = 0;
        dnnl_graph_logical_tensor_get_mem_size(&lt, &size);
        dnnl_graph_logical_tensor_is_equal(&lt, &slot(lts_), &equal);
        if (in_.chance(4)) dnnl_graph_op_add_input(slot(ops_), &lt);
        if (in_.chance(4)) dnnl_graph_op_add_output(slot(ops_), &lt);
    }

    void finish_graph() {
        client_graph *graph = graphs_[in_.byte() % 2];
        if (!in_.chance(16)) dnnl_graph_graph_finalize(graph);
        dnnl_graph_graph_filter(graph, any_of(partition_policy::fusion));
        std::size_t count = 0;
        if (dnnl_graph_graph_get_partition_num(graph, &count) != status::success) return;
        std::vector<client_partition *> made(count + 1, nullptr);
        const std::size_t asked = in_.chance(16) ? count + 1 : count;
        dnnl_graph_graph_get_partitions(graph, asked, made.data());
        for (client_partition *p : made) {
            if (p == nullptr) continue;
            client_partition *&place = slot(partitions_);
            dnnl_graph_partition_destroy(std::exchange(place, p));
        }
    }

    static std::vector<tensor_description> ports_of(const client_partition *p, bool inputs) {
        std::size_t count = 0;
        if (inputs)
            dnnl_graph_partition_get_input_ports_num(p, &count);
        else
            dnnl_graph_partition_get_output_ports_num(p, &count);
        std::vector<tensor_description> ports(count);
        if (inputs)
            dnnl_graph_partition_get_input_ports(p, count, ports.data());
        else
            dnnl_graph_partition_get_output_ports(p, count, ports.data());
        return ports;
    }

    void compile() {
        client_partition *partition = slot(partitions_);
        client_compiled_partition *&place = slot(compiled_);
        dnnl_graph_compiled_partition_destroy(std::exchange(place, nullptr));
        if (dnnl_graph_compiled_partition_create(&place, partition) != status::success) return;
        std::vector<tensor_description> in = ports_of(partition, true),
                                        out = ports_of(partition, false);
        while (in_.chance(4) && !in.empty()) {
            tensor_description &lt = in[in_.byte() % in.size()];
            const std::size_t id = lt.id;
            lt = slot(lts_);
            if (!in_.chance(4)) lt.id = id;
        }
        if (in_.chance(8) && !in.empty()) in.pop_back();
        if (in_.chance(4) && !out.empty()) out[0].layout = layout_type::any;
        std::vector<const tensor_description *> in_list, out_list;
        for (const tensor_description &lt : in) in_list.push_back(&lt);
        for (const tensor_description &lt : out) out_list.push_back(&lt);
        if (in_.chance(16) && !in_list.empty()) in_list[0] = nullptr;
        const status done = dnnl_graph_partition_compile(partition, place, in_list.size(),
            in_list.data(), out_list.size(), out_list.data(), in_.chance(16) ? nullptr : engine_);
        if (done != status::success) return;
        run(place, in, out);
    }

    /// Another tensor, with the memory that its own description asks for.
    void spoil_known(tensor_description &lt) {
        const std::size_t axis = in_.byte() % 6;
        if (in_.chance(4)) {
            lt.type = element_type::bf16;
            return;
        }
        std::int64_t &field = in_.chance(2) ? lt.dims[axis] : lt.strides[axis];
        field = in_.between(0, 9);
    }

    /// A tensor as the compiled partition wants it, or nearly so.
    client_tensor *tensor_for(const client_compiled_partition *compiled, std::size_t id,
        std::vector<std::unique_ptr<std::byte[]>> &memory) {
        tensor_description lt{};
        std::size_t bytes = 0;
        if (dnnl_graph_compiled_partition_query_logical_tensor(compiled, id, &lt)
            != status::success)
            return nullptr;
        if (in_.chance(16)) spoil_known(lt);
        dnnl_graph_logical_tensor_get_mem_size(&lt, &bytes);
        if (bytes > largest_buffer) return nullptr;
        client_tensor *made = nullptr;
        if (in_.chance(4)) {
            dnnl_graph_tensor_create(&made, &lt, engine_, reinterpret_cast<void *>(UINTPTR_MAX));
            void *data = nullptr;
            dnnl_graph_tensor_get_data_handle(made, &data);
            if (data != nullptr) std::memset(data, 0, bytes);
        } else {
            memory.push_back(std::make_unique<std::byte[]>(bytes));
            fill(memory.back().get(), bytes);
            dnnl_graph_tensor_create(&made, &lt, engine_, memory.back().get());
        }
        return made;
    }

    void run(client_compiled_partition *compiled, const std::vector<tensor_description> &in,
        const std::vector<tensor_description> &out) {
        std::vector<std::unique_ptr<std::byte[]>> memory;
        std::vector<const client_tensor *> inputs, outputs;
        for (const tensor_description &lt : in)
            inputs.push_back(tensor_for(compiled, lt.id, memory));
        for (const tensor_description &lt : out)
            outputs.push_back(tensor_for(compiled, lt.id, memory));
        double work = 1;
        for (const auto *list : {&inputs, &outputs})
            for (const client_tensor *t : *list) {
                std::size_t bytes = 1;
                tensor_description lt{};
                if (t == nullptr || dnnl_graph_tensor_get_logical_tensor(t, &lt) != status::success
                    || dnnl_graph_logical_tensor_get_mem_size(&lt, &bytes) != status::success)
                    work = 1e9;  // too large, or nothing at all
                else
                    work *= std::sqrt(static_cast<double>(std::max<std::size_t>(bytes / 4, 1)));
            }
        const auto execute = [&] {
            return work < 1e5
                   && dnnl_graph_compiled_partition_execute(compiled, stream_, inputs.size(),
                          inputs.data(), outputs.size(), outputs.data())
                          == status::success;
        };
        if (execute()) run_in_place(compiled, inputs, outputs, execute);
        for (const auto *list : {&inputs, &outputs})
            for (const client_tensor *t : *list)
                dnnl_graph_tensor_destroy(const_cast<client_tensor *>(t));
    }

    static std::size_t id_of(const client_tensor *t) {
        tensor_description lt{};
        dnnl_graph_tensor_get_logical_tensor(t, &lt);
        return lt.id;
    }

    /// Where the partition offers it, the result in the place of the tensor that is added: the same
    /// bytes.
    template <typename Execute>
    static void run_in_place(const client_compiled_partition *compiled,
        const std::vector<const client_tensor *> &inputs,
        const std::vector<const client_tensor *> &outputs, const Execute &execute) {
        std::size_t count = 0;
        const inplace_pair *pairs = nullptr;
        if (dnnl_graph_compiled_partition_get_inplace_ports(compiled, &count, &pairs)
                != status::success
            || count == 0)
            return;
        for (const client_tensor *in : inputs)
            for (const client_tensor *out : outputs) {
                if (id_of(in) != pairs[0].input_id || id_of(out) != pairs[0].output_id) continue;
                tensor_description lt{};
                std::size_t bytes = 0;
                void *apart = nullptr, *shared = nullptr;
                dnnl_graph_tensor_get_logical_tensor(out, &lt);
                dnnl_graph_logical_tensor_get_mem_size(&lt, &bytes);
                dnnl_graph_tensor_get_data_handle(out, &apart);
                dnnl_graph_tensor_get_data_handle(in, &shared);
                auto *tensor = const_cast<client_tensor *>(out);
                dnnl_graph_tensor_set_data_handle(tensor, shared);
                const bool done = execute();
                dnnl_graph_tensor_set_data_handle(tensor, apart);
                require(done, "an offered place was refused");
                require(is_strided(lt) || std::memcmp(apart, shared, bytes) == 0,
                    "another result in place");
            }
    }

    /// Whether there may be memory between elements, which results do not touch.
    static bool is_strided(const tensor_description &lt) {
        std::int64_t packed = 1;
        bool gaps = false;
        for (int i = lt.ndims; i-- > 0; packed *= lt.dims[i])
            gaps = gaps || (lt.dims[i] > 1 && lt.strides[i] != packed);
        return gaps;
    }

    /// Tensors of other partitions, without memory.
    void execute_garbage() {
        const client_tensor *list[3] = {};
        for (const client_tensor *&t : list) {
            client_tensor *given = slot(tensors_);
            dnnl_graph_tensor_set_data_handle(given, nullptr);
            t = given;
        }
        const std::size_t inputs = in_.byte() % 4, outputs = in_.byte() % 2;
        dnnl_graph_compiled_partition_execute(
            slot(compiled_), in_.chance(8) ? nullptr : stream_, inputs, list, outputs, list);
    }

    void make_tensor() {
        const tensor_description &lt = slot(lts_);
        client_tensor *&place = slot(tensors_);
        dnnl_graph_tensor_destroy(std::exchange(place, nullptr));
        std::size_t bytes = 0;
        dnnl_graph_logical_tensor_get_mem_size(&lt, &bytes);
        std::int64_t value = 3;
        if (in_.chance(4))
            dnnl_graph_tensor_create_scalar(&place, &lt, &value);
        else
            dnnl_graph_tensor_create(&place, &lt, in_.chance(8) ? nullptr : engine_,
                bytes <= largest_buffer ? reinterpret_cast<void *>(UINTPTR_MAX) : nullptr);
    }

    void ask() {
        std::size_t number = 0;
        std::uint8_t flag = 0;
        engine_kind_value kind{};
        graph_op_kind op_kind{};
        client_engine *engine = nullptr;
        tensor_description lt{};
        const inplace_pair *pairs = nullptr;
        client_partition *p = slot(partitions_);
        dnnl_graph_partition_get_id(p, &number);
        dnnl_graph_partition_is_supported(p, &flag);
        dnnl_graph_partition_get_engine_kind(p, &kind);
        if (dnnl_graph_partition_get_op_num(p, &number) == status::success) {
            std::vector<std::size_t> ids(number);
            dnnl_graph_partition_get_ops(p, number, ids.data());
        }
        client_compiled_partition *c = slot(compiled_);
        dnnl_graph_compiled_partition_query_logical_tensor(c, in_.byte() % 10, &lt);
        dnnl_graph_compiled_partition_get_inplace_ports(c, &number, &pairs);
        dnnl_graph_compiled_partition_get_scratchpad_logical_tensor(c, &lt);
        client_op *op = slot(ops_);
        dnnl_graph_op_get_id(op, &number);
        dnnl_graph_op_get_kind(op, &op_kind);
        dnnl_graph_tensor_get_engine(slot(tensors_), &engine);
        dnnl_graph_graph_is_finalized(graphs_[0], &flag);
        dnnl_engine_get_kind(engine, &kind);
        dnnl_stream_get_engine(stream_, &engine);
        dnnl_stream_wait(stream_);
    }

    void destroy() {
        switch (in_.byte() % 5) {
        case 0:
            dnnl_graph_op_destroy(std::exchange(slot(ops_), nullptr));
            break;
        case 1:
            dnnl_graph_graph_destroy(std::exchange(graphs_[in_.byte() % 2], nullptr));
            break;
        case 2:
            dnnl_graph_partition_destroy(std::exchange(slot(partitions_), nullptr));
            break;
        case 3:
            dnnl_graph_compiled_partition_destroy(std::exchange(slot(compiled_), nullptr));
            break;
        default:
            dnnl_graph_tensor_destroy(std::exchange(slot(tensors_), nullptr));
        }
    }

    void change_settings() {
        switch (in_.byte() % 5) {
        case 0:
            dnnl_set_default_fpmath_mode(any_of(fpmath_mode::strict));
            break;
        case 1:
            dnnl_graph_set_compiled_partition_cache_capacity(static_cast<int>(in_.number()));
            break;
        case 2:
            dnnl_graph_set_constant_tensor_cache_capacity(
                any_of(engine_kind_value::cpu), static_cast<std::size_t>(in_.number()));
            break;
        case 3:
            dnnl_graph_set_constant_tensor_cache(static_cast<int>(in_.number()));
            break;
        default:
            dnnl_stream_destroy(stream_);
            dnnl_engine_destroy(engine_);
            engine_ = nullptr;
            stream_ = nullptr;
            dnnl_engine_create(&engine_, any_of(engine_kind_value::cpu), in_.byte() % 2);
            dnnl_stream_create(&stream_, engine_, in_.byte() % 4);
        }
    }

    void change_graph() {
        client_graph *&graph = graphs_[in_.byte() % 2];
        fpmath_mode mode{};
        int applies = 0;
        if (in_.chance(4)) {
            dnnl_graph_graph_destroy(std::exchange(graph, nullptr));
            dnnl_graph_graph_create_with_fpmath_mode(
                &graph, any_of(engine_kind_value::cpu), static_cast<fpmath_mode>(in_.byte() % 6));
        }
        dnnl_graph_graph_set_fpmath_mode(
            graph, static_cast<fpmath_mode>(in_.byte() % 6), in_.byte());
        dnnl_graph_graph_get_fpmath_mode(graph, &mode, &applies);
    }

    input &in_;
    layer layer_;
    std::size_t next_op_ = 0;
    client_engine *engine_ = nullptr;
    client_stream *stream_ = nullptr;
    std::array<tensor_description, 4> lts_{};
    std::array<client_op *, 4> ops_{};
    std::array<client_graph *, 2> graphs_{};
    std::array<client_partition *, 4> partitions_{};
    std::array<client_compiled_partition *, 4> compiled_{};
    std::array<client_tensor *, 4> tensors_{};
};

}  // namespace
}  // namespace convgrad::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    convgrad::fuzz::input in(data, size);
    convgrad::fuzz::client client(in);
    while (!in.empty()) client.step();
    return 0;
}
