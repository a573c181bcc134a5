// What a call costs beside its arithmetic, from C++: a 3x3 convolution of one 8x8 image with one
// channel, by an eager call, by a compiled op, by a graph, and by its kernel alone (a plan that is
// executed).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include <convgrad/convgrad.hpp>

#include "engine/engine.hpp"
#include "op/lower.hpp"

namespace {

/// Microseconds of one call: the best of many batches, since everything else on a machine only
/// adds.
template <typename Call>
double best_of(const Call &call) {
    constexpr int batches = 200, calls = 200;
    double best = 1e9;
    for (int batch = 0; batch < batches; ++batch) {
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < calls; ++i) call();
        const std::chrono::duration<double, std::micro> took =
            std::chrono::steady_clock::now() - begin;
        best = std::min(best, took.count() / calls);
    }
    return best;
}

}  // namespace

int main() {
    using namespace convgrad;
    std::vector<float> src(64, 1.0F), weights(9, 0.5F), dst(36);
    const tensor s(src.data(), {1, 8, 8, 1}), w(weights.data(), {3, 3, 1, 1});
    const tensor d(dst.data(), {1, 6, 6, 1});
    const logical_tensor ls(0, data_type::f32, s.shape), lw(1, data_type::f32, w.shape);
    const logical_tensor ld(2, data_type::f32, d.shape);

    const engine::impl &on = default_engine().get();
    const logical_tensor inputs[] = {ls, lw}, outputs[] = {ld};
    const conv::problem problem =
        ops::lower(ops::parse(op_kind::convolution, {}, 4, {}), inputs, outputs);
    const stream stream_on;
    engines::lane &lane = stream_on.get();
    const auto plan = on.backend->make_plan(problem, on.limits());
    const engines::scratch_lease workspace(lane, plan->workspace());
    const conv::buffers buffers{src.data(), weights.data(), dst.data(), nullptr, nullptr};
    const double kernel = best_of([&] { plan->execute({&buffers, 1}, workspace.data(), lane); });
    const double planning = best_of([&] { (void)on.backend->make_plan(problem, on.limits()); });

    const compiled_partition compiled = compile(op_kind::convolution, {ls, lw}, {ld});
    const std::vector<tensor> ins = {s, w}, outs = {d};
    const double by_compiled = best_of([&] { compiled.execute(stream_on, ins, outs); });
    const double eager = best_of([&] { convolution(s, w, {}, d); });
    const double compiling = best_of([&] { (void)compile(op_kind::convolution, {ls, lw}, {ld}); });

    op node(0, op_kind::convolution);
    node.set("strides", dims{1, 1}).set("dilations", dims{1, 1});
    node.set("pads_begin", dims{0, 0}).set("pads_end", dims{0, 0});
    node.add_input(ls).add_input(lw).add_output(ld);
    const double by_graph = best_of([&] {
        graph g;
        g.add(node).finalize();
        (void)g.partitions().front().compile();
    });

    std::printf("kernel alone          %6.2f us\n", kernel);
    std::printf("planning              %6.2f us\n", planning);
    std::printf(
        "compiled call         %6.2f us, overhead %.2f us\n", by_compiled, by_compiled - kernel);
    std::printf("eager call            %6.2f us, overhead %.2f us\n", eager, eager - kernel);
    std::printf("compile()             %6.2f us\n", compiling);
    std::printf("graph to compiled     %6.2f us\n", by_graph);
}
