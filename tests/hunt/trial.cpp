#include "trial.hpp"

#include <algorithm>

namespace hunt {
namespace {

layout draw_input_layout(draw &random) {
    const auto share = random.between(0, 99);
    return share < 35   ? layout::packed
           : share < 50 ? layout::permuted
           : share < 75 ? layout::gapped
           : share < 87 ? layout::interleaved
                        : layout::overlapping;
}

layout draw_output_layout(draw &random) {
    const auto share = random.between(0, 99);
    return share < 35   ? layout::packed
           : share < 55 ? layout::permuted
           : share < 80 ? layout::gapped
           : share < 98 ? layout::interleaved
                        : layout::overlapping;
}

values read(const memory &from, const std::vector<std::size_t> &order) {
    values v;
    v.reserve(order.size());
    for (std::size_t i : order) v.push_back(from.get(i));
    return v;
}

std::vector<std::size_t> counted(dim count) {
    std::vector<std::size_t> order;
    for (dim i = 0; i < count; ++i) order.push_back(static_cast<std::size_t>(i));
    return order;
}

/// Small whole numbers whose sums f32 holds exactly, or real ones.
class source {
public:
    source(const problem &p, draw &random)
        : p_(p), random_(random), most_(std::min<dim>(random.one_of<dim>({1, 2, 3, 7, 15, 100}),
                                      static_cast<dim>(std::sqrt(0x1p24 / p.terms()) - 1))) {}

    double next(data_type type) {
        if (p_.exact) return static_cast<double>(random_.between(-most_, most_));
        if (p_.special && random_.percent(2))
            return random_.one_of({HUGE_VAL, -HUGE_VAL, std::nan("")});
        return rounded(std::ldexp(random_.real(), static_cast<int>(random_.between(-3, 2))), type);
    }
    void fill(memory &m) {
        for (std::size_t i = 0; i < m.size(); ++i) m.put(i, next(m.type()));
    }

private:
    const problem &p_;
    draw &random_;
    dim most_;
};

}  // namespace

trial::trial(problem what, draw &random) : p(std::move(what)) {
    place(random);
    fill(random);
    if (!refused) evaluate();
}

memory &trial::addend() {
    return p.in_place ? outputs[0].where : p.add_is_src ? src : add;
}

std::vector<memory *> trial::inputs() {
    switch (p.what) {
    case gradient::data:
        return {&diff_dst, &weights};
    case gradient::weights:
        return {&src, &diff_dst};
    case gradient::both:
        return {&src, &diff_dst, &weights};
    case gradient::none:
        break;
    }
    std::vector<memory *> list = {&src, &weights};
    if (p.bias) list.push_back(&bias);
    if (p.add) list.push_back(&addend());
    return list;
}

void trial::add_output(
    data_type type, const dims &shape, std::vector<std::size_t> order, draw &random) {
    output o;
    o.where = memory(type, shape, draw_output_layout(random), random);
    o.order = std::move(order);
    refused = refused || o.where.elements_overlap();
    outputs.push_back(std::move(o));
}

void trial::place(draw &random) {
    const auto input = [&](const dims &shape) {
        return memory(p.type, shape, draw_input_layout(random), random);
    };
    const dims large = p.large_shape(), small = p.small_shape();
    const auto large_order = data_order(p, p.large_c, &axis::large),
               small_order = data_order(p, p.small_c, &axis::small);
    const dims &src_shape = p.transposed ? small : large, &dst_shape = p.transposed ? large : small;
    const auto &src_order = p.transposed ? small_order : large_order,
               &dst_order = p.transposed ? large_order : small_order;
    const dim oc = p.transposed ? p.large_c : p.small_c;
    if (p.what != gradient::data) src = input(src_shape);
    if (p.what != gradient::weights) weights = input(p.weights_shape());
    if (p.what == gradient::none) {
        add_output(p.type, dst_shape, dst_order, random);
        if (p.bias) bias = input({oc});
        if (p.add && !p.in_place && !p.add_is_src) add = input(dst_shape);
        return;
    }
    diff_dst = input(dst_shape);
    if (p.what != gradient::weights) add_output(p.type, src_shape, src_order, random);
    if (p.what == gradient::data) return;
    add_output(
        p.f32_weights ? data_type::f32 : p.type, p.weights_shape(), weights_order(p), random);
    if (p.diff_bias) add_output(p.f32_bias ? data_type::f32 : p.type, {oc}, counted(oc), random);
}

void trial::fill(draw &random) {
    source from(p, random);
    for (memory *m : {&src, &weights, &bias, &add, &diff_dst}) {
        if (!m->exists()) continue;
        m->fill_all(random);
        from.fill(*m);
    }
    for (output &o : outputs) {
        if (p.accumulate || p.in_place)
            for (std::size_t i = 0; i < o.order.size(); ++i) o.old.push_back(from.next(p.type));
        o.where.fill_all(random);
    }
    refill(random);
}

void trial::refill(draw &random) {
    for (memory *m : {&src, &weights, &bias, &add, &diff_dst})
        if (m->exists()) m->fill_gaps(random);
    for (output &o : outputs) {
        o.where.fill_all(random);
        for (std::size_t i = 0; i < o.old.size(); ++i) o.where.put(o.order[i], o.old[i]);
    }
}

void trial::evaluate() {
    const auto large = data_order(p, p.large_c, &axis::large),
               small = data_order(p, p.small_c, &axis::small);
    const auto &src_order = p.transposed ? small : large, &dst_order = p.transposed ? large : small;
    const values dst_values = p.what == gradient::none ? values{} : read(diff_dst, dst_order);
    const values src_values = p.what == gradient::data ? values{} : read(src, src_order);
    const values w = p.what == gradient::weights ? values{} : read(weights, weights_order(p));
    for (output &o : outputs) o.want.sum = o.want.size = values(o.order.size());
    std::size_t next = 0;
    if (p.what == gradient::none) add_layer(p, src_values, w, outputs[0].want);
    if (p.what == gradient::data || p.what == gradient::both)
        add_data_gradient(p, dst_values, w, outputs[next++].want);
    if (p.what == gradient::weights || p.what == gradient::both) {
        add_weights_gradient(p, src_values, dst_values, outputs[next++].want);
        if (p.diff_bias) add_bias_gradient(p, dst_values, outputs[next].want);
    }
    const values added = p.add && !p.in_place ? read(addend(), dst_order) : values{};
    const dim oc = p.transposed ? p.large_c : p.small_c;
    for (output &o : outputs) {
        const std::size_t image = o.order.size() / static_cast<std::size_t>(std::max<dim>(p.n, 1));
        const std::size_t positions = oc == 0 ? 1 : image / static_cast<std::size_t>(oc);
        for (std::size_t i = 0; i < o.order.size(); ++i) {
            const auto take = [&](double v) {
                o.want.sum[i] += v;
                o.want.size[i] += std::abs(v);
            };
            if (p.bias) take(bias.get(i / positions % static_cast<std::size_t>(oc)));
            if (!added.empty()) take(added[i]);
            if (!o.old.empty()) take(o.old[i]);
            if (p.relu && o.want.sum[i] < 0) o.want.sum[i] = 0;
        }
    }
}

}  // namespace hunt
