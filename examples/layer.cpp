// A whole layer, forward and backward, trained for a few steps: ReLU-free convolution with bias
// that learns to copy another convolution.
#include <convgrad/convgrad.hpp>

#include <cstdio>
#include <vector>

using namespace convgrad;

namespace {

const attributes layer_attributes = {.strides = {2, 2}, .auto_pad = auto_pad::same_upper};
const dims src_shape = {4, 9, 9, 3}, weights_shape = {3, 3, 3, 8}, bias_shape = {8};

// A cheap generator: the example needs neither quality nor headers.
std::vector<float> pseudo_random(std::size_t count, unsigned seed) {
    std::vector<float> values(count);
    for (float &v : values) {
        seed = seed * 1664525U + 1013904223U;
        v = static_cast<float>(seed >> 16) / 32768.0F - 1.0F;
    }
    return values;
}

void step_down(std::vector<float> &values, const std::vector<float> &gradient, float rate) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] -= rate * gradient[i];
}

}  // namespace

int main() {
    // Shapes come from the library: 9×9 pixels with stride 2 become 5×5.
    const dims dst_shape =
        infer_shape(op_kind::convolution, src_shape, weights_shape, layer_attributes);
    std::size_t dst_size = 1;
    for (dim d : dst_shape) dst_size *= static_cast<std::size_t>(d);

    std::vector<float> src = pseudo_random(4 * 9 * 9 * 3, 1);
    std::vector<float> wanted_weights = pseudo_random(3 * 3 * 3 * 8, 2);
    std::vector<float> wanted_bias = pseudo_random(8, 3);
    std::vector<float> weights(3 * 3 * 3 * 8), bias(8);
    std::vector<float> wanted(dst_size), dst(dst_size), diff_dst(dst_size);
    std::vector<float> diff_src(src.size()), diff_weights(weights.size()), diff_bias(bias.size());

    const tensor x(src.data(), src_shape);
    convolution(x, {wanted_weights.data(), weights_shape}, {wanted_bias.data(), bias_shape},
        {wanted.data(), dst_shape}, layer_attributes);

    double first_loss = 0, loss = 0;
    for (int step = 0; step <= 60; ++step) {
        convolution(x, {weights.data(), weights_shape}, {bias.data(), bias_shape},
            {dst.data(), dst_shape}, layer_attributes);

        loss = 0;
        for (std::size_t i = 0; i < dst_size; ++i) {
            diff_dst[i] = dst[i] - wanted[i];
            loss += 0.5 * static_cast<double>(diff_dst[i]) * static_cast<double>(diff_dst[i]);
        }
        if (step == 0) first_loss = loss;
        if (step % 20 == 0) std::printf("step %2d: loss %.4f\n", step, loss);

        // All three gradients. diff_src would go to the layer below.
        const tensor db(diff_bias.data(), bias_shape);
        convolution_backward(x, {diff_dst.data(), dst_shape}, {weights.data(), weights_shape},
            {diff_src.data(), src_shape}, {diff_weights.data(), weights_shape}, layer_attributes,
            {.diff_bias = &db});
        step_down(weights, diff_weights, 0.02F);
        step_down(bias, diff_bias, 0.005F);
    }
    return loss < 0.01 * first_loss ? 0 : 1;
}
