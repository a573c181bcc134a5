#include "case.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>
#include <stdexcept>

#include <sys/mman.h>

namespace convgrad::soak {
namespace {

using test::rng;

dim product(const dims &list) {
    return std::accumulate(list.begin(), list.end(), dim{1}, std::multiplies<>());
}

dims data_shape(bool channels_last, dim n, dim c, const dims &x) {
    dims shape{n};
    if (!channels_last) shape.push_back(c);
    shape.insert(shape.end(), x.begin(), x.end());
    if (channels_last) shape.push_back(c);
    return shape;
}

/// `first` and `second` are O and I of a convolution, I and O of a transposed one.
dims weights_shape(bool kernel_first, dim first, dim second, const dims &k) {
    dims shape;
    if (!kernel_first) shape = {first, second};
    shape.insert(shape.end(), k.begin(), k.end());
    if (kernel_first) shape.insert(shape.end(), {second, first});
    return shape;
}

/// Most layers are small: many shapes matter more here than long sums.
double draw_size_limit(rng &random) {
    return random.chance(0.05) ? 3e7 : random.chance(0.4) ? 2e6 : 2e5;
}

/// Sizes only; false if the kernel does not fit or the layer is too large.
bool draw_sizes(rng &random, layer &l) {
    const auto rank = static_cast<std::size_t>(random.pick({1, 2, 2, 2, 3}));
    const bool last = random.chance(0.5), kernel_first = random.chance(0.5);
    l.attrs.data_format = last ? "NXC" : "NCX";
    l.attrs.weights_format = l.transposed   ? (kernel_first ? "XOI" : "IOX")
                             : kernel_first ? "XIO"
                                            : "OIX";
    l.attrs.groups = random.pick<dim>({1, 1, 1, 2, 4, 16});
    dim ic = random.between(1, l.attrs.groups > 1 ? 4 : 96);
    dim oc = random.between(1, l.attrs.groups > 1 ? 4 : 96);
    if (random.chance(0.02)) (random.chance(0.5) ? ic : oc) = 0;
    dims x, k;
    for (std::size_t d = 0; d < rank; ++d) {
        x.push_back(random.between(1, rank == 1 ? 300 : rank == 2 ? 40 : 12));
        k.push_back(random.pick<dim>({1, 2, 3, 3, 5}));
        l.attrs.strides.push_back(random.pick<dim>({1, 1, 2, 3}));
        l.attrs.dilations.push_back(random.pick<dim>({1, 1, 2}));
        l.attrs.pads_begin.push_back(random.between(0, l.transposed ? 1 : 3));
        l.attrs.pads_end.push_back(random.between(0, l.transposed ? 1 : 3));
    }
    l.src = data_shape(last, random.between(1, 4), ic * l.attrs.groups, x);
    l.weights = weights_shape(
        kernel_first, (l.transposed ? ic : oc) * l.attrs.groups, l.transposed ? oc : ic, k);
    const op_kind forward = l.transposed ? op_kind::conv_transpose : op_kind::convolution;
    try {
        l.dst = infer_shape(forward, l.src, l.weights, l.attrs);
    } catch (const error &) {
        return false;
    }
    constexpr dim most_elements = 1000000;  // of a data tensor
    if (std::max(product(l.src), product(l.dst)) > most_elements) return false;
    const auto positions = static_cast<double>(product(l.transposed ? l.src : l.dst));
    const auto per_position = static_cast<double>(product(l.weights));
    const auto each = static_cast<double>(std::max<dim>(l.transposed ? ic : oc, 1));
    return positions * per_position / each / static_cast<double>(l.attrs.groups)
           < draw_size_limit(random);
}

dims strides_of(const dims &shape, std::size_t gap) {
    dims strides(shape.size(), 1);
    for (std::size_t d = shape.size() - 1; d-- > 0;) strides[d] = strides[d + 1] * shape[d + 1];
    strides[0] += static_cast<dim>(gap);
    return strides;
}

std::size_t span_of(const dims &shape, const dims &strides) {
    return product(shape) == 0 ? 0 : static_cast<std::size_t>(strides[0] * shape[0]);
}

/// What lies between the images of an input, which no result may depend on.
void fill_gaps(const tensor &t, int with) {
    const std::size_t size = size_of(t.type), image = static_cast<std::size_t>(t.strides[0]);
    const dim held = t.shape[0] == 0 ? 0 : product(t.shape) / t.shape[0];
    for (std::size_t n = 0; held > 0 && n < static_cast<std::size_t>(t.shape[0]); ++n)
        std::memset(
            static_cast<std::byte *>(t.data) + (n * image + static_cast<std::size_t>(held)) * size,
            with, (image - static_cast<std::size_t>(held)) * size);
}

/// Every bit pattern of moderate size: |v| in about [2^-8, 2).
std::uint32_t random_bits(data_type type, std::uint64_t word) {
    const auto bits = static_cast<std::uint32_t>(word);
    const std::uint32_t step = bits >> 28 & 7U, sign = bits >> 31;
    switch (type) {
    case data_type::bf16:
        return sign << 15 | (120 + step) << 7 | (bits & 0x7fU);
    case data_type::f16:
        return sign << 15 | (8 + step) << 10 | (bits & 0x3ffU);
    default:
        return sign << 31 | (120 + step) << 23 | (bits & 0x7fffffU);
    }
}

class tensors {
public:
    tensors(arena &memory, std::uint64_t number) : memory_(memory), random_(number * 2 + 1) {}

    /// A tensor with random contents; for outputs too, which may accumulate.
    tensor make(data_type type, const dims &shape, std::size_t gap = 0) {
        const dims strides = strides_of(shape, gap);
        const auto count = span_of(shape, strides);
        void *data = memory_.take(count * size_of(type));
        for (std::size_t i = 0; i < count; ++i) {
            const std::uint32_t bits = random_bits(type, random_.next());
            std::memcpy(static_cast<std::byte *>(data) + i * size_of(type), &bits, size_of(type));
        }
        return {data, type, shape, strides};
    }

private:
    arena &memory_;
    rng random_;
};

std::uint64_t hash(std::uint64_t seed, const tensor &t) {
    const auto *bytes = static_cast<const unsigned char *>(t.data);
    const auto count = span_of(t.shape, t.strides) * size_of(t.type);
    for (std::size_t i = 0; i < count; ++i) seed = (seed ^ bytes[i]) * 0x100000001b3U;
    return seed;
}

/// Everything of one run: the same tensors whatever the route.
struct step {
    const layer &l;
    op_kind kind;
    std::vector<tensor> inputs, outputs;
    tensor add;
};

op_kind kind_of(const layer &l) {
    const auto first =
        static_cast<int>(l.transposed ? op_kind::conv_transpose : op_kind::convolution);
    return static_cast<op_kind>(first + std::min(static_cast<int>(l.what), 2));
}

step make_step(std::uint64_t number, const layer &l, arena &memory) {
    tensors make(memory, number);
    step s{l, kind_of(l), {}, {}, {}};
    const tensor src = make.make(l.type, l.src, l.gap), dst = make.make(l.type, l.dst, l.gap);
    const tensor weights = make.make(l.type, l.weights);
    const dims channels{l.attrs.data_format == "NXC" ? l.dst.back() : l.dst[1]};
    switch (l.what) {
    case task::forward:
        s.inputs = {src, weights};
        if (l.bias) s.inputs.push_back(make.make(l.type, channels));
        s.outputs = {dst};
        if (l.add) s.add = l.add_in_place ? dst : make.make(l.type, l.dst, l.gap);
        break;
    case task::backward_data:
        s.inputs = {dst, weights};
        s.outputs = {src};
        break;
    case task::backward_weights:
        s.inputs = {src, dst};
        s.outputs = {make.make(l.gradient_type, l.weights)};
        break;
    case task::backward:
        s.inputs = {src, dst, weights};
        s.outputs = {make.make(l.type, l.src, l.gap), make.make(l.gradient_type, l.weights)};
        break;
    }
    if (l.bias && (l.what == task::backward_weights || l.what == task::backward))
        s.outputs.push_back(make.make(l.gradient_type, channels));
    return s;
}

bool weights_gradient(const layer &l) {
    return l.what == task::backward_weights || l.what == task::backward;
}

options options_of(const step &s, const engine &on) {
    options opts;
    opts.on = &on;
    opts.accumulate = s.l.accumulate;
    opts.relu = s.l.relu;
    if (s.l.add) opts.add = &s.add;
    if (weights_gradient(s.l) && s.l.bias) opts.diff_bias = &s.outputs.back();
    return opts;
}

void run_eager(const step &s, const engine &on) {
    const auto &in = s.inputs;
    const auto &out = s.outputs;
    const options opts = options_of(s, on);
    const attributes &a = s.l.attrs;
    const tensor none;
    if (s.l.what == task::backward) {
        const auto call = s.l.transposed ? conv_transpose_backward : convolution_backward;
        return call(in[0], in[1], in[2], out[0], out[1], a, opts);
    }
    switch (s.kind) {
    case op_kind::convolution:
        return convolution(in[0], in[1], in.size() > 2 ? in[2] : none, out[0], a, opts);
    case op_kind::convolution_backward_data:
        return convolution_backward_data(in[0], in[1], out[0], a, opts);
    case op_kind::convolution_backward_weights:
        return convolution_backward_weights(in[0], in[1], out[0], a, opts);
    case op_kind::conv_transpose:
        return conv_transpose(in[0], in[1], in.size() > 2 ? in[2] : none, out[0], a, opts);
    case op_kind::conv_transpose_backward_data:
        return conv_transpose_backward_data(in[0], in[1], out[0], a, opts);
    case op_kind::conv_transpose_backward_weights:
        return conv_transpose_backward_weights(in[0], in[1], out[0], a, opts);
    default:
        break;  // none of convolution_op_kinds
    }
}

logical_tensor described(std::size_t id, const tensor &t) {
    return {id, t.type, t.shape, t.strides};
}

compile_options flags_of(const step &s, const engine &on) {
    return {.accumulate = s.l.accumulate,
        .diff_bias = weights_gradient(s.l) && s.l.bias,
        .relu = s.l.relu,
        .add = s.l.add,
        .on = &on};
}

compiled_partition compile_step(const step &s, const engine &on) {
    std::vector<logical_tensor> in, out;
    for (const tensor &t : s.inputs) in.push_back(described(in.size(), t));
    if (s.l.add) in.push_back(described(in.size(), s.add));
    for (const tensor &t : s.outputs) out.push_back(described(10 + out.size(), t));
    const compile_options opts = flags_of(s, on);
    if (s.l.what == task::backward) {
        const op_kind forward = s.l.transposed ? op_kind::conv_transpose : op_kind::convolution;
        return compile_backward(forward, in, out, s.l.attrs, opts);
    }
    return compile(s.kind, in, out, s.l.attrs, opts);
}

op make_op(std::size_t id, op_kind kind, const layer &l) {
    op node(id, kind);
    node.set("strides", l.attrs.strides).set("dilations", l.attrs.dilations);
    node.set("pads_begin", l.attrs.pads_begin).set("pads_end", l.attrs.pads_end);
    node.set("groups", l.attrs.groups);
    node.set("data_format", data_format(l.attrs.data_format));
    node.set("weights_format", weights_format(*l.attrs.weights_format));
    if (l.accumulate) node.set("accumulate", 1);
    return node;
}

compiled_partition compile_graph(const step &s, const engine &on) {
    graph g;
    if (s.l.what == task::backward) {
        const auto data = static_cast<op_kind>(static_cast<int>(s.kind) - 1);
        op first = make_op(0, data, s.l), second = make_op(1, s.kind, s.l);
        const logical_tensor src = described(0, s.inputs[0]), dst = described(1, s.inputs[1]);
        first.add_input(dst).add_input(described(2, s.inputs[2]));
        first.add_output(described(10, s.outputs[0]));
        second.add_input(src).add_input(dst);
        for (std::size_t i = 1; i < s.outputs.size(); ++i)
            second.add_output(described(10 + i, s.outputs[i]));
        g.add(first).add(second);
    } else {
        op node = make_op(0, s.kind, s.l);
        for (std::size_t i = 0; i < s.inputs.size(); ++i) node.add_input(described(i, s.inputs[i]));
        for (std::size_t i = 0; i < s.outputs.size(); ++i)
            node.add_output(described(10 + i, s.outputs[i]));
        g.add(node);
    }
    g.finalize();
    const auto parts = g.partitions();
    if (parts.size() != 1) throw std::logic_error("a pair of gradients is not one partition");
    return parts[0].compile(on);
}

/// Tensors in the order that the partition wants: ids are places in inputs, or 10 + in outputs.
void execute(const step &s, const compiled_partition &ready, const engine &on) {
    std::vector<tensor> in, out;
    for (const logical_tensor &t : ready.inputs())
        in.push_back(s.l.add && t.id == s.inputs.size() ? s.add : s.inputs.at(t.id));
    for (const logical_tensor &t : ready.outputs()) out.push_back(s.outputs.at(t.id - 10));
    ready.execute(stream(on), in, out);
}

}  // namespace

layer draw_layer(std::uint64_t number) {
    rng random(number * 0x9e3779b97f4a7c15U + 17);
    for (;;) {
        layer l;
        l.transposed = random.chance(0.4);
        l.what = static_cast<task>(random.between(0, 3));
        l.type = random.pick({data_type::f32, data_type::f32, data_type::bf16, data_type::f16});
        l.gradient_type = random.chance(0.5) ? l.type : data_type::f32;
        l.gap = random.chance(0.3) ? static_cast<std::size_t>(random.between(1, 40)) : 0;
        l.bias = random.chance(0.5);
        l.relu = l.what == task::forward && random.chance(0.3);
        l.add = l.what == task::forward && random.chance(0.3);
        l.add_in_place = l.add && random.chance(0.5);
        l.accumulate = l.what != task::forward && random.chance(0.3);
        l.on.max_isa = random.chance(0.6)
                           ? isa::best
                           : all_isas[static_cast<std::size_t>(random.between(0, 4))];
        l.on.math = random.pick({math_mode::strict, math_mode::accurate, math_mode::fast});
        if (draw_sizes(random, l)) return l;
    }
}

visit draw_visit(rng &random) {
    visit v;
    v.how = static_cast<route>(random.between(0, 2));
    v.threads = random.pick({0, 1, 1, 2, 3, 5, 16});
    v.repeats = random.pick({1, 1, 3});
    return v;
}

arena::arena(std::size_t bytes) : size_(bytes) {
    void *mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    memory_ = static_cast<std::byte *>(mapped);
    std::fill_n(memory_, bytes, std::byte{1});
}

arena::~arena() {
    munmap(memory_, size_);
}

void *arena::take(std::size_t bytes) {
    const std::size_t at = (used_ + 63) / 64 * 64;
    if (at + bytes > size_) throw std::logic_error("a layer does not fit into the arena");
    used_ = at + bytes;
    return memory_ + at;
}

std::uint64_t run(std::uint64_t number, const layer &l, const visit &v, arena &memory) {
    memory.reset();
    const step s = make_step(number, l, memory);
    for (const tensor &t : s.inputs)
        if (t.strides.size() > 1) fill_gaps(t, v.threads % 2 == 0 ? 0xff : 0x11);
    engine_options settings = l.on;
    settings.threads = v.threads;
    const engine on(settings);
    // Graph ops know neither ReLU nor add.
    const bool by_graph = v.how == route::graph && !l.relu && !l.add;
    if (v.how == route::eager) {
        run_eager(s, on);
    } else {
        const compiled_partition ready = by_graph ? compile_graph(s, on) : compile_step(s, on);
        // A step that adds to its output changes what it starts from, so that it runs once.
        const bool once = l.accumulate || l.add_in_place;
        for (int i = 0; i < (once ? 1 : v.repeats); ++i) {
            const engine other(settings);
            execute(s, ready, i % 2 ? other : on);
        }
    }
    std::uint64_t sum = 0xcbf29ce484222325U;
    for (const tensor &t : s.outputs) sum = hash(sum, t);
    return sum == 0 ? 1 : sum;
}

}  // namespace convgrad::soak
