// Both gradients and the bias gradient of a layer as one partition, against the separate ops, in
// one interleaved run: best of several, same data, same threads.
//
//     convgrad-joint [threads]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <convgrad/convgrad.hpp>

namespace {

using namespace convgrad;

struct layer {
    const char *name;
    dim mb, ic, oc, size, kernel, groups;
};

/// Channels and maps as in common networks: pointwise and depthwise layers are bound by memory, the
/// 3×3 ones by arithmetic.
constexpr layer layers[] = {{"1x1 64 to 256, 56x56", 16, 64, 256, 56, 1, 1},
    {"1x1 256 to 64, 56x56", 16, 256, 64, 56, 1, 1},
    {"1x1 64 to 64, 112x112", 8, 64, 64, 112, 1, 1},
    {"1x1 24 to 144, 56x56", 16, 24, 144, 56, 1, 1},
    {"1x1 32 to 16, 112x112", 8, 32, 16, 112, 1, 1},
    {"depthwise 96, 112x112", 8, 96, 96, 112, 3, 96},
    {"depthwise 144, 56x56", 16, 144, 144, 56, 3, 144},
    {"3x3 64 to 64, 56x56", 8, 64, 64, 56, 3, 1}, {"3x3 256 to 256, 14x14", 8, 256, 256, 14, 3, 1}};

template <typename Run>
double seconds(Run &&run) {
    const auto start = std::chrono::steady_clock::now();
    run();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void measure(const layer &l, data_type type, const engine &on) {
    const dims src{l.mb, l.size, l.size, l.ic}, dst{l.mb, l.size, l.size, l.oc};
    const dims weights{l.kernel, l.kernel, l.ic / l.groups, l.oc};
    const auto elements = [](const dims &shape) {
        dim n = 1;
        for (dim d : shape) n *= d;
        return static_cast<std::size_t>(n);
    };
    // Zeros take as long as other values; every page is touched.
    std::vector<float> x(elements(src)), y(elements(dst)), w(elements(weights)), dx(x.size()),
        dw(w.size()), db(static_cast<std::size_t>(l.oc));
    const attributes attrs{.pads_begin = {l.kernel / 2, l.kernel / 2},
        .pads_end = {l.kernel / 2, l.kernel / 2},
        .groups = l.groups};
    const tensor bias_place(db.data(), type, {l.oc});
    const logical_tensor ls(0, type, src), ld(1, type, dst), lw(2, type, weights),
        lb(3, type, {l.oc});
    const options opts{.on = &on}, with_bias{.diff_bias = &bias_place, .on = &on};
    const auto joint =
        compile_backward(op_kind::convolution, {ls, ld, lw}, {ls, lw, lb}, attrs, opts);
    const auto data = compile(op_kind::convolution_backward_data, {ld, lw}, {ls}, attrs, opts);
    const auto gradient =
        compile(op_kind::convolution_backward_weights, {ls, ld}, {lw, lb}, attrs, with_bias);
    const tensor ts(x.data(), type, src), td(y.data(), type, dst), tw(w.data(), type, weights);
    const tensor tdx(dx.data(), type, src), tdw(dw.data(), type, weights);
    const stream s(on);
    double together = 1e9, apart = 1e9;
    for (int round = 0; round < 12; ++round) {
        together = std::min(together, seconds([&] {
            joint.execute(s, {ts, td, tw}, {tdx, tdw, bias_place});
        }));
        apart = std::min(apart, seconds([&] {
            data.execute(s, {td, tw}, {tdx});
            gradient.execute(s, {ts, td}, {tdw, bias_place});
        }));
    }
    std::printf("%-26s %-5s joint %8.3f ms  separate %8.3f ms  ratio %.2f\n", l.name,
        std::string(to_string(type)).c_str(), together * 1e3, apart * 1e3, apart / together);
}

}  // namespace

int main(int argc, char **argv) {
    const engine on(engine_options{.threads = argc > 1 ? std::atoi(argv[1]) : 0});
    for (const layer &l : layers)
        for (data_type type : {data_type::f32, data_type::bf16}) measure(l, type, on);
    return 0;
}
