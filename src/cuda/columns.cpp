#include "cuda/columns.hpp"

#include <algorithm>

#include <convgrad/error.hpp>

#include "cuda/dense.hpp"
#include "cuda/kernels/columns_args.hpp"

namespace convgrad::cuda {
namespace {

using conv::pass;
using conv::problem;

constexpr wide alignment = 256;

/// Whether a position reads beside src.
bool has_padding(const problem &p) {
    return std::any_of(
        p.x.begin(), p.x.end(), [](const conv::axis &a) { return a.pad > 0 || end_pad(a) > 0; });
}

/// What is multiplied: rows of positions by rows of weights, as a layer of one tap.
struct shape {
    wide terms, padded;  // of a row; with what fills 16 bytes
    wide rows_bytes, weights_bytes;
    problem product;

    explicit shape(const problem &p) : terms(taps_of(p) * p.ic) {
        const wide element = static_cast<wide>(size_of(p.type)), piece = 16 / element;
        padded = cover(terms, piece) * piece;
        const wide weight = p.what == pass::backward_weights ? 4 : element;
        rows_bytes = cover(positions_of(p) * padded * element, alignment) * alignment;
        weights_bytes = cover(p.oc * padded * weight, alignment) * alignment;
        product = p;
        product.ic = padded;
        wide next = padded;
        for (std::size_t d = 3; d-- > 0;) {
            product.x[d] = {};
            product.x[d].src = product.x[d].dst = p.x[d].dst;
            product.src.x[d] = next;
            next *= p.x[d].dst;
            product.weights.k[d] = 1;
        }
        product.src.n = next;
        product.src.c = 1;
        product.weights.g = p.oc * padded;
        product.weights.o = padded;
        product.weights.i = 1;
        product.constant_weights = false;
        if (p.what == pass::backward_weights) {
            product.out_type = data_type::f32;
            product.accumulate = false;
        }
    }
    [[nodiscard]] std::size_t bytes() const {
        return static_cast<std::size_t>(rows_bytes + weights_bytes);
    }
    /// What the product may use.
    [[nodiscard]] engines::plan_limits rest(const engines::plan_limits &limits) const {
        return {limits.workspace > bytes() ? limits.workspace - bytes() : 0, {}};
    }
};

/// Elements of src.
wide results_of(const problem &p) {
    wide all = p.mb * p.ic;
    for (const conv::axis &a : p.x) all *= a.src;
    return all;
}
/// Elements along an axis that so many positions read.
wide read_by(const conv::axis &a, wide positions) {
    return (positions - 1) * a.stride + (a.kernel - 1) * a.dilation + 1;
}
/// Of what `positions` of a line read.
wide box_bytes(const problem &p, wide positions) {
    return read_by(p.x[0], 1) * read_by(p.x[1], 1) * read_by(p.x[2], positions) * p.ic
           * static_cast<wide>(size_of(p.type));
}
/// Positions that are packed at once, in segments of nearly one length.
wide segment_of(const problem &p) {
    const wide width = p.x[2].dst;
    wide segments = cover(width, columns_most_segment);
    while (segments < width && box_bytes(p, cover(width, segments)) > columns_most_box) ++segments;
    return cover(width, segments);
}

columns_args make_args(const problem &p, const shape &s) {
    columns_args a{};
    a.mb = p.mb;
    a.channels = p.ic;
    a.out_channels = p.oc;
    for (std::size_t d = 0; d < 3; ++d) {
        a.x[d] = to_args(p.x[d], false);
        a.src_x[d] = p.src.x[d];
        a.w_tap[d] = p.weights.k[d];
    }
    a.src_n = p.src.n;
    a.src_c = p.src.c;
    a.w_out = p.weights.o;
    a.w_in = p.weights.i;
    a.positions = positions_of(p);
    a.lines = a.positions / p.x[2].dst;
    a.segment = static_cast<int>(segment_of(p));
    a.segments = static_cast<int>(cover(p.x[2].dst, a.segment));
    for (std::size_t d = 0; d < 3; ++d)
        a.box[d] = static_cast<int>(read_by(p.x[d], d == 2 ? a.segment : 1));
    a.terms = static_cast<int>(s.terms);
    a.padded = static_cast<int>(s.padded);
    a.channels_inside = p.src.c == 1 ? 1 : 0;
    a.padding = has_padding(p) ? 1 : 0;
    a.accumulate = p.accumulate ? 1 : 0;
    a.out_type = element_of(p.out_type);
    if (p.what == pass::forward) a.data = make_data_args(p, 1, 1);
    a.weights = make_weights_args(p);
    return a;
}

class columns_plan final : public plan {
public:
    columns_plan(std::string_view name, const problem &p, const architecture &on,
        const engines::plan_limits &limits)
        : problem_(p), shape_(p), args_(make_args(p, shape_)),
          product_(make_plan(shape_.product, on, shape_.rest(limits))) {
        set_facts(name, on, predict(p, shape_, *product_),
            is_fast(p) ? engines::accuracy::fast : engines::accuracy::accurate);
    }
    static prediction predict(const problem &p, const shape &s, const engines::plan &product) {
        // As measured on an H200: each segment of a line waits for what it reads, and a thread
        // finds each element by itself.
        constexpr double of_segment = 5e-9, of_element = 1e-12, of_result = 1.2e-11;
        const wide segments = positions_of(p) / p.x[2].dst * cover(p.x[2].dst, segment_of(p));
        const double moved =
            is_backward(p) ? static_cast<double>(results_of(p)) * of_result
                           : static_cast<double>(segments) * of_segment
                                 + static_cast<double>(positions_of(p) * s.padded) * of_element;
        const double launches = p.what == pass::forward && has_padding(p) ? 8e-6 : 4e-6;
        return {product.facts().seconds + moved + launches, product.workspace() + s.bytes()};
    }
    [[nodiscard]] std::string describe() const override {
        return "rows of " + std::to_string(shape_.terms) + ", then "
               + std::string(product_->algorithm()) + ": " + product_->describe();
    }

private:
    void run(const conv::buffers &data, void *workspace, const lane &on) const override {
        auto *const rows = static_cast<std::byte *>(workspace),
                    *const weights = rows + shape_.rows_bytes,
                    *const rest = weights + shape_.weights_bytes;
        const bool backward = is_backward(problem_);
        conv::buffers inner = data;
        inner.src = rows;
        inner.weights = weights;
        inner.prepared = nullptr;
        if (!backward) launch(kernel::columns_f32, data.src, rows, packing_threads(), data, on);
        if (problem_.what != pass::backward_weights)
            launch(kernel::columns_weights_f32, data.weights, weights, problem_.oc * shape_.padded,
                data, on);
        static_cast<const plan &>(*product_).queue(inner, rest, on);
        if (backward)
            launch(kernel::columns_spread_f32, rows, data.src, results_of(problem_), data, on);
        else if (problem_.what == pass::backward_weights)
            launch(kernel::columns_store_f32, weights, data.weights, problem_.oc * shape_.terms,
                data, on);
        else if (args_.padding != 0)
            launch(kernel::columns_check_f32, weights, nullptr, check_threads, data, on);
    }
    /// A kernel with so many threads.
    void launch(kernel first, const void *from, void *to, wide threads, const conv::buffers &data,
        const lane &on) const {
        columns_args args = args_;
        args.from = from;
        args.to = to;
        args.data.in = data.src;
        args.data.weights = data.weights;
        bind(args.data.end, problem_, data);
        args.weights.src = data.src;
        args.weights.dst = data.dst;
        const wide shared = first == kernel::columns_f32 ? box_bytes(problem_, args_.segment) : 0;
        on.launch(of_type(first, problem_.type), cover(threads, columns_threads), columns_threads,
            &args, static_cast<std::size_t>(shared));
    }
    /// Blocks list their terms first, and take several segments.
    [[nodiscard]] wide packing_threads() const {
        constexpr wide most_blocks = 132 * 8;
        return std::min<wide>(args_.lines * args_.segments, most_blocks) * columns_threads;
    }
    static constexpr wide check_threads = wide{264} * columns_threads;

    problem problem_;
    shape shape_;
    columns_args args_;
    std::unique_ptr<const engines::plan> product_;
};

}  // namespace

std::string refuse_columns(const problem &p) {
    if (!fits_32_bits(p)) return "sizes need 64-bit indices";
    if (has_empty_tensor(p)) return "an empty tensor";
    if (p.groups != 1) return "for one group";
    if (p.ic > few_channels) return "for up to " + std::to_string(few_channels) + " channels";
    if (taps_of(p) == 1) return "for more taps than one";
    if (p.diff_bias == conv::bias_gradient::from_src) return "sums no channels of src";
    const wide terms = taps_of(p) * p.ic;
    if (terms > columns_most_terms) return "more terms than a row takes";
    constexpr wide most = wide{1} << 31;
    if (results_of(p) >= most || positions_of(p) * terms >= most * 512
        || p.oc * (terms + 8) >= most)
        return "too many positions";
    if (!is_backward(p) && box_bytes(p, 1) > columns_most_box) return "taps too far apart";
    for (const conv::axis &a : p.x)
        if (is_backward(p) && (a.kernel > a.stride || a.dilation != 1))
            return "results that several positions share";
    if (is_backward(p)) {
        if (p.bias || p.add || p.accumulate || p.relu) return "stores nothing but the sum";
        if (p.oc < 3) return "fewer than 3 channels in a sum";  // as refuse_wgmma()
        return {};
    }
    if (p.what == pass::backward_weights) {
        // The product sums the bias gradient, but does not add to weights.
        if (p.accumulate && p.diff_bias != conv::bias_gradient::none)
            return "adds no bias gradient to what is there";
        return refuse_dense_weights(p);
    }
    if (p.accumulate && has_padding(p)) return "adds nothing to what is there";
    if (p.ic < 3) return "fewer than 3 channels in a sum";
    return {};
}

prediction predict_columns(
    const problem &p, const architecture &on, const engines::plan_limits &limits) {
    const shape s(p);
    try {
        return columns_plan::predict(p, s, *make_plan(s.product, on, s.rest(limits)));
    } catch (const error &) {
        // Its product has too little room.
        return columns_plan::predict(p, s, *make_plan(s.product, on, {}));
    }
}

std::unique_ptr<const engines::plan> make_columns_plan(std::string_view name, const problem &p,
    const architecture &on, const engines::plan_limits &limits) {
    return std::make_unique<columns_plan>(name, p, on, limits);
}

}  // namespace convgrad::cuda
