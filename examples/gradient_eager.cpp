// The gradient of a convolution with respect to its weights, in one call.
//
// diff_weights[k, i, o] = Σ over images and positions of src (shifted by the tap) · diff_dst.
#include <convgrad/convgrad.hpp>

#include <cstdio>
#include <vector>

int main() {
    // 2 images of 6×6 pixels with 3 channels; 4 output channels; a 3×3 kernel, padded by one pixel,
    // so that the output has 6×6 pixels too. The last dimension is innermost everywhere.
    std::vector<float> src(2 * 6 * 6 * 3, 1.0F);
    std::vector<float> diff_dst(2 * 6 * 6 * 4, 0.5F);
    std::vector<float> diff_weights(3 * 3 * 3 * 4);

    convgrad::convolution_backward_weights({src.data(), {2, 6, 6, 3}},
        {diff_dst.data(), {2, 6, 6, 4}}, {diff_weights.data(), {3, 3, 3, 4}},
        {.pads_begin = {1, 1}, .pads_end = {1, 1}});

    // The middle tap meets all 36 pixels of both images, a corner tap only 25: padding counts zero.
    const float corner = diff_weights[0];
    const float middle = diff_weights[(1 * 3 + 1) * 3 * 4];
    std::printf(
        "corner tap %g, middle tap %g\n", static_cast<double>(corner), static_cast<double>(middle));
    return corner == 25.0F && middle == 36.0F ? 0 : 1;
}
