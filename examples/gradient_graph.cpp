// The same gradient by way of a graph: describe, compile once, execute often.
#include <convgrad/convgrad.hpp>

#include <cstdio>
#include <vector>

using namespace convgrad;

int main() {
    // Tensors are known by id; dimensions may stay open until compilation.
    const logical_tensor src(0, data_type::f32, {unknown_dim, 6, 6, 3});
    const logical_tensor diff_dst(1, data_type::f32, {unknown_dim, 6, 6, 4});
    const logical_tensor diff_weights(2, data_type::f32);

    op gradient(0, "ConvolutionBackwardWeights", "conv1");
    gradient.set("strides", dims{1, 1}).set("dilations", dims{1, 1});
    gradient.set("pads_begin", dims{1, 1}).set("pads_end", dims{1, 1});
    gradient.set("weights_shape", dims{3, 3, 3, 4});
    gradient.add_input(src).add_input(diff_dst).add_output(diff_weights);

    graph g;
    g.add(gradient);
    g.finalize();
    const partition part = g.partitions()[0];

    const stream s;
    for (dim batch : {1, 2}) {
        const compiled_partition compiled = part.compile(
            {{0, data_type::f32, {batch, 6, 6, 3}}, {1, data_type::f32, {batch, 6, 6, 4}}},
            {diff_weights});
        std::printf("%s\n", compiled.describe().c_str());

        // Inference found the shape of the output.
        const dims shape = *compiled.query(2).shape;
        std::vector<float> x(static_cast<std::size_t>(batch) * 6 * 6 * 3, 1.0F);
        std::vector<float> dy(static_cast<std::size_t>(batch) * 6 * 6 * 4, 0.5F);
        std::vector<float> dw(3 * 3 * 3 * 4);
        compiled.execute(
            s, {{x.data(), {batch, 6, 6, 3}}, {dy.data(), {batch, 6, 6, 4}}}, {{dw.data(), shape}});

        const float middle = dw[(1 * 3 + 1) * 3 * 4];
        std::printf(
            "batch %d: middle tap %g\n", static_cast<int>(batch), static_cast<double>(middle));
        if (middle != 18.0F * static_cast<float>(batch)) return 1;
    }
    return 0;
}
