// Gradient accumulation: a batch of four images as four micro-batches, and 16-bit data with an f32
// gradient. Both ways add into the same memory, without a buffer or a pass of its own for the sum.
#include <convgrad/convgrad.hpp>

#include <cstdio>
#include <vector>

using namespace convgrad;

namespace {

const attributes same = {.auto_pad = auto_pad::same_upper};
const dims weights_shape = {3, 3, 4, 4};

}  // namespace

int main() {
    constexpr dim images = 4, size = 8 * 8 * 4;
    std::vector<bf16> src(images * size), diff_dst(images * size);
    for (std::size_t i = 0; i < src.size(); ++i) {
        src[i] = to_bf16(static_cast<float>(i % 7) - 3.0F);
        diff_dst[i] = to_bf16(static_cast<float>(i % 5) - 2.0F);
    }

    // Once over the whole batch …
    std::vector<float> whole(3 * 3 * 4 * 4);
    convolution_backward_weights({src.data(), {images, 8, 8, 4}},
        {diff_dst.data(), {images, 8, 8, 4}}, {whole.data(), weights_shape}, same);

    // … and image by image: compiled once, executed four times into the same gradient.
    const logical_tensor data(0, data_type::bf16, {1, 8, 8, 4});
    const compiled_partition add_gradient = compile(op_kind::convolution_backward_weights,
        {data, data}, {{1, data_type::f32, weights_shape}}, same, {.accumulate = true});
    const stream s;
    std::vector<float> sum(whole.size(), 0.0F);
    for (dim i = 0; i < images; ++i)
        add_gradient.execute(s,
            {{src.data() + i * size, {1, 8, 8, 4}}, {diff_dst.data() + i * size, {1, 8, 8, 4}}},
            {{sum.data(), weights_shape}});

    std::printf("%s\nfirst weight: %g in one go, %g in four\n", add_gradient.describe().c_str(),
        static_cast<double>(whole[0]), static_cast<double>(sum[0]));
    return whole == sum ? 0 : 1;
}
