#include "onednn.hpp"

#include <optional>
#include <unordered_map>

#include <dlfcn.h>

#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.hpp>

#include "cpu/pool.hpp"
#include "usage_error.hpp"

namespace convgrad::compare {
namespace {

using cli::role;
using dnnl::memory;

constexpr dnnl::algorithm conv_direct = dnnl::algorithm::convolution_direct;
constexpr dnnl::algorithm deconv_direct = dnnl::algorithm::deconvolution_direct;

memory::data_type type_of(data_type type) {
    if (type == data_type::f32) return memory::data_type::f32;
    return type == data_type::bf16 ? memory::data_type::bf16 : memory::data_type::f16;
}

/// What oneDNN calls src, weights and dst: a transposed convolution's src is our canonical dst.
struct descriptions {
    memory::desc src, weights, dst;
};

struct geometry {
    memory::dims strides, dilates, pads_begin, pads_end;
};

memory::desc data_desc(const conv::problem &p, bool src, std::size_t first) {
    const conv::data_strides &s = src ? p.src : p.dst;
    memory::dims shape = {p.mb, p.groups * (src ? p.ic : p.oc)}, strides = {s.n, s.c};
    for (std::size_t i = first; i < 3; ++i) {
        shape.push_back(src ? p.x[i].src : p.x[i].dst);
        strides.push_back(s.x[i]);
    }
    return {shape, type_of(p.type), strides};
}

memory::desc weights_desc(const conv::problem &p, bool transposed, std::size_t first) {
    const conv::weights_strides &s = p.weights;
    memory::dims shape, strides;
    if (p.groups > 1) {
        shape = {p.groups};
        strides = {s.g};
    }
    shape.insert(shape.end(), {transposed ? p.ic : p.oc, transposed ? p.oc : p.ic});
    strides.insert(strides.end(), {transposed ? s.i : s.o, transposed ? s.o : s.i});
    for (std::size_t i = first; i < 3; ++i) {
        shape.push_back(p.x[i].kernel);
        strides.push_back(s.k[i]);
    }
    return {shape, type_of(p.type), strides};
}

geometry geometry_of(const conv::problem &p, std::size_t first) {
    geometry g;
    for (std::size_t i = first; i < 3; ++i) {
        const conv::axis &a = p.x[i];
        g.strides.push_back(a.stride);
        g.dilates.push_back(a.dilation - 1);
        g.pads_begin.push_back(a.pad);
        g.pads_end.push_back(
            (a.dst - 1) * a.stride + (a.kernel - 1) * a.dilation + 1 - a.src - a.pad);
    }
    return g;
}

memory::desc any_layout(const memory::desc &plain) {
    return {plain.get_dims(), plain.get_data_type(), memory::format_tag::any};
}

/// A primitive and the layouts that it wants.
struct chosen {
    dnnl::primitive run;
    descriptions wants;
    std::string implementation;
};

template <typename Forward, typename Data, typename Weights>
chosen choose(op_kind kind, dnnl::algorithm algorithm, const dnnl::engine &on,
    const descriptions &d, const geometry &g) {
    const typename Forward::primitive_desc forward(on, dnnl::prop_kind::forward_training, algorithm,
        d.src, d.weights, d.dst, g.strides, g.dilates, g.pads_begin, g.pads_end);
    if (kind == op_kind::convolution || kind == op_kind::conv_transpose)
        return {Forward(forward), {forward.src_desc(), forward.weights_desc(), forward.dst_desc()},
            forward.impl_info_str()};
    if (kind == op_kind::convolution_backward_data
        || kind == op_kind::conv_transpose_backward_data) {
        const typename Data::primitive_desc pd(on, algorithm, d.src, d.weights, d.dst, g.strides,
            g.dilates, g.pads_begin, g.pads_end, forward);
        return {Data(pd), {pd.diff_src_desc(), pd.weights_desc(), pd.diff_dst_desc()},
            pd.impl_info_str()};
    }
    const typename Weights::primitive_desc pd(on, algorithm, d.src, d.weights, d.dst, g.strides,
        g.dilates, g.pads_begin, g.pads_end, forward);
    return {Weights(pd), {pd.src_desc(), pd.diff_weights_desc(), pd.diff_dst_desc()},
        pd.impl_info_str()};
}

/// An argument of the primitive: plain memory, and the primitive's own where that differs.
struct argument {
    memory plain, own;
    std::optional<dnnl::reorder> convert;  // plain to own of an input, own to plain of an output
    bool counted = true;                   // whether converting is part of an execution
};

class primitive final : public onednn_primitive {
public:
    primitive(
        const cli::op_case &what, const cli::op_call &call, const conv::buffers &data, usage how)
        : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
        const bool transposed = cli::is_transposed(what.kind);
        const auto first = static_cast<std::size_t>(3 - what.problem->rank);
        const conv::problem &p = call.problem;
        const descriptions plain = {data_desc(p, !transposed, first),
            weights_desc(p, transposed, first), data_desc(p, transposed, first)};
        descriptions asked = plain;
        if (how != usage::plain) asked.weights = any_layout(plain.weights);
        if (how == usage::reordered) {
            asked.src = any_layout(plain.src);
            asked.dst = any_layout(plain.dst);
        }
        const geometry g = geometry_of(p, first);
        chosen_ =
            transposed ? choose<dnnl::deconvolution_forward, dnnl::deconvolution_backward_data,
                dnnl::deconvolution_backward_weights>(what.kind, deconv_direct, engine_, asked, g)
                       : choose<dnnl::convolution_forward, dnnl::convolution_backward_data,
                           dnnl::convolution_backward_weights>(
                           what.kind, conv_direct, engine_, asked, g);
        bind(call, data, plain, how, transposed);
    }

    void execute() override {
        for (argument &a : inputs_)
            if (a.convert && a.counted) a.convert->execute(stream_, a.plain, a.own);
        chosen_.run.execute(stream_, arguments_);
        if (output_.convert && output_.counted)
            output_.convert->execute(stream_, output_.own, output_.plain);
        stream_.wait();
    }

    const void *result() override {
        if (output_.convert && !output_.counted) {
            output_.convert->execute(stream_, output_.own, output_.plain);
            stream_.wait();
        }
        return output_.plain.get_data_handle();
    }

    [[nodiscard]] std::string implementation() const override { return chosen_.implementation; }

private:
    void bind(const cli::op_call &call, const conv::buffers &data, const descriptions &plain,
        usage how, bool transposed) {
        void *const memories[] = {
            transposed ? data.dst : data.src, data.weights, transposed ? data.src : data.dst};
        const memory::desc *const plains[] = {&plain.src, &plain.weights, &plain.dst};
        const memory::desc *const owns[] = {
            &chosen_.wants.src, &chosen_.wants.weights, &chosen_.wants.dst};
        // oneDNN's place for the canonical role.
        const auto place = [&](role r) {
            if (r == role::weights) return std::size_t{1};
            return static_cast<std::size_t>((r == role::src) == transposed ? 2 : 0);
        };
        const std::size_t out = place(call.output);
        const auto bind_one = [&](std::size_t i) {
            argument a;
            a.plain =
                i == out ? memory(*plains[i], engine_) : memory(*plains[i], engine_, memories[i]);
            a.own = a.plain;
            a.counted = how != usage::free_weights || i != 1;
            if (*owns[i] == *plains[i]) return a;
            a.own = memory(*owns[i], engine_);
            a.convert = i == out ? dnnl::reorder(a.own, a.plain) : dnnl::reorder(a.plain, a.own);
            return a;
        };
        constexpr int input_names[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
        const bool forward_op =
            call.node.kind() == op_kind::convolution || call.node.kind() == op_kind::conv_transpose;
        constexpr int gradient_names[] = {
            DNNL_ARG_DIFF_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST};
        for (std::size_t i = 0; i < 3; ++i) {
            const bool gradient = !forward_op && (i == out || i == 2);
            argument a = bind_one(i);
            arguments_.emplace(gradient ? gradient_names[i] : input_names[i], a.own);
            if (i == out) {
                output_ = a;
                continue;
            }
            if (a.convert && !a.counted) a.convert->execute(stream_, a.plain, a.own);
            inputs_.push_back(a);
        }
        stream_.wait();
    }

    dnnl::engine engine_;
    dnnl::stream stream_;
    chosen chosen_;
    std::vector<argument> inputs_;
    argument output_;
    std::unordered_map<int, memory> arguments_;
};

}  // namespace

std::string_view to_string(usage how) {
    constexpr std::string_view names[] = {"free weights", "reordered", "plain"};
    return names[static_cast<std::size_t>(how)];
}

bool onednn_primitive::is_reference() const {
    return implementation().find("ref") != std::string::npos;
}

std::unique_ptr<onednn_primitive> make_onednn(
    const cli::op_case &what, const cli::op_call &call, const conv::buffers &data, usage how) {
    try {
        return std::make_unique<primitive>(what, call, data, how);
    } catch (const dnnl::error &e) {
        if (e.status == dnnl_unimplemented) return nullptr;
        throw;
    }
}

void set_onednn_threads(int threads) {
    const unsigned runtime = dnnl_version()->cpu_runtime;
    if (runtime == DNNL_RUNTIME_OMP) {
        // Whichever OpenMP library oneDNN brought along.
        using setter = void (*)(int);
        const auto set = reinterpret_cast<setter>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
        if (set == nullptr) throw cli::usage_error("no omp_set_num_threads in oneDNN's OpenMP");
        return set(threads);
    }
    const int fixed = runtime == DNNL_RUNTIME_SEQ ? 1 : cpu::available_cores();
    if (threads != fixed)
        throw cli::usage_error(fmt::format("this oneDNN is not built with OpenMP, so its threads "
                                           "cannot be set; --threads {} is what it takes",
            fixed));
}

std::string onednn_version() {
    const dnnl_version_t *v = dnnl_version();
    const std::string number = fmt::format("oneDNN {}.{}.{}", v->major, v->minor, v->patch);
    const std::string_view commit = v->hash;
    return commit == "N/A" ? number : fmt::format("{} ({})", number, commit.substr(0, 8));
}

namespace {

struct isa_name {
    dnnl_cpu_isa_t isa;
    const char *name;
};

constexpr isa_name isa_names[] = {
    {dnnl_cpu_isa_sse41, "sse41"},
    {dnnl_cpu_isa_avx, "avx"},
    {dnnl_cpu_isa_avx2, "avx2"},
    {dnnl_cpu_isa_avx2_vnni, "avx2_vnni"},
    {dnnl_cpu_isa_avx512_core, "avx512_core"},
    {dnnl_cpu_isa_avx512_core_vnni, "avx512_core_vnni"},
    {dnnl_cpu_isa_avx512_core_bf16, "avx512_core_bf16"},
    {dnnl_cpu_isa_avx512_core_fp16, "avx512_core_fp16"},
    {dnnl_cpu_isa_avx512_core_amx, "avx512_core_amx"},
    {dnnl_cpu_isa_avx512_core_amx_fp16, "avx512_core_amx_fp16"},
};

}  // namespace

std::string onednn_isa() {
    const dnnl_cpu_isa_t found = dnnl_get_effective_cpu_isa();
    for (const isa_name &n : isa_names)
        if (n.isa == found) return n.name;
    return fmt::format("isa {:#x}", static_cast<unsigned>(found));
}

}  // namespace convgrad::compare
