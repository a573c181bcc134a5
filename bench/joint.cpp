// Both gradients of a layer as one partition, against the separate ops, in one interleaved run:
// best of several, same data, same threads. The limit is what memory allows: the tensors that one
// pass over diff_dst reads and writes, at the speed of a loop that does nothing else.
//
//     convgrad-joint [--threads N] [--rounds N] [--only TEXT] [--mb N] [--no-bias]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <convgrad/convgrad.hpp>

namespace {

using namespace convgrad;

/// A layer that keeps the size of its map unless it has a stride.
struct layer {
    const char *name;
    dim mb;
    dim ic, oc;
    std::vector<dim> map;
    dim kernel, stride, groups;
};

/// Channels and maps as in common networks; batches so large that no cache keeps a tensor from one
/// op to the next.
const std::vector<layer> layers = {
    {"depthwise 3x3 96, 112x112", 16, 96, 96, {112, 112}, 3, 1, 96},
    {"depthwise 3x3 144, 56x56", 48, 144, 144, {56, 56}, 3, 1, 144},
    {"depthwise 3x3 240, 28x28", 96, 240, 240, {28, 28}, 3, 1, 240},
    {"depthwise 3x3 480, 14x14", 192, 480, 480, {14, 14}, 3, 1, 480},
    {"depthwise 3x3 960, 7x7", 384, 960, 960, {7, 7}, 3, 1, 960},
    {"depthwise 3x3 s2 96, 112x112", 16, 96, 96, {112, 112}, 3, 2, 96},
    {"depthwise 5x5 144, 56x56", 48, 144, 144, {56, 56}, 5, 1, 144},
    {"depthwise 5x5 480, 14x14", 192, 480, 480, {14, 14}, 5, 1, 480},
    {"depthwise 7x7 96, 56x56", 64, 96, 96, {56, 56}, 7, 1, 96},
    {"depthwise 7x7 384, 14x14", 256, 384, 384, {14, 14}, 7, 1, 384},
    {"depthwise 1-D 5 256, 1024", 64, 256, 256, {1024}, 5, 1, 256},
    {"depthwise 3-D 3x3x3 64, 16x28x28", 24, 64, 64, {16, 28, 28}, 3, 1, 64},
    {"1x1 32 to 16, 112x112", 32, 32, 16, {112, 112}, 1, 1, 1},
    {"1x1 16 to 96, 112x112", 16, 16, 96, {112, 112}, 1, 1, 1},
    {"1x1 24 to 144, 56x56", 48, 24, 144, {56, 56}, 1, 1, 1},
    {"1x1 64 to 64, 112x112", 16, 64, 64, {112, 112}, 1, 1, 1},
    {"1x1 64 to 256, 56x56", 24, 64, 256, {56, 56}, 1, 1, 1},
    {"1x1 256 to 64, 56x56", 24, 256, 64, {56, 56}, 1, 1, 1},
    {"1-D 1 40 to 40, 4096", 128, 40, 40, {4096}, 1, 1, 1},
    {"grouped 3x3 128 by 32, 56x56", 48, 128, 128, {56, 56}, 3, 1, 32},
    {"grouped 3x3 256 by 8, 28x28", 96, 256, 256, {28, 28}, 3, 1, 8},
    {"grouped 1x1 240 by 3, 28x28", 96, 240, 240, {28, 28}, 1, 1, 3},
    {"3x3 3 to 32 s2, 224x224", 24, 3, 32, {224, 224}, 3, 2, 1},
    {"3x3 64 to 64, 56x56", 24, 64, 64, {56, 56}, 3, 1, 1},
    {"3x3 256 to 256, 14x14", 32, 256, 256, {14, 14}, 3, 1, 1},
};

struct settings {
    int threads = 1, rounds = 7;
    const char *only = "";
    dim mb = 0;  // 0: each layer's own
    bool bias = true;
};

template <typename Run>
double seconds(Run &&run) {
    const auto start = std::chrono::steady_clock::now();
    run();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::size_t elements(const dims &shape) {
    dim n = 1;
    for (dim d : shape) n *= d;
    return static_cast<std::size_t>(n);
}

dims shape_of(dim mb, dim channels, const std::vector<dim> &map, dim stride, bool channels_last) {
    std::vector<dim> shape{mb};
    if (!channels_last) shape.push_back(channels);
    for (dim length : map) shape.push_back((length + stride - 1) / stride);
    if (channels_last) shape.push_back(channels);
    return dims(shape.begin(), shape.end());
}

/// Seconds of one thread to read two arrays of floats and write a third, per byte of all three.
double seconds_per_byte() {
    static const double found = [] {
        const std::size_t count = std::size_t{24} << 20;
        std::vector<float> a(count, 1.0F), b(count, 2.0F), c(count, 3.0F);
        double best = 1e9;
        for (int round = 0; round < 7; ++round)
            best = std::min(best, seconds([&] {
                for (std::size_t i = 0; i < count; ++i) c[i] = a[i] + b[i];
            }));
        return best / static_cast<double>(12 * count);
    }();
    return found;
}

/// Neither way finds what the other left.
void empty_caches() {
    static std::vector<float> other(std::size_t{24} << 20, 1.0F);
    for (float &value : other) value += 1;
}

void measure(
    const layer &l, data_type type, bool channels_last, const settings &with, const engine &on) {
    const std::size_t size = size_of(type);
    const dim mb = with.mb > 0 ? with.mb : l.mb;
    const dims src = shape_of(mb, l.ic, l.map, 1, channels_last),
               dst = shape_of(mb, l.oc, l.map, l.stride, channels_last);
    dims weights(l.map.size(), l.kernel);
    weights.push_back(l.ic / l.groups);
    weights.push_back(l.oc);
    if (!channels_last) {
        weights = {l.oc, l.ic / l.groups};
        for (std::size_t a = 0; a < l.map.size(); ++a) weights.push_back(l.kernel);
    }
    // Zeros take as long as other values; every page is touched.
    std::vector<char> x(elements(src) * size), y(elements(dst) * size), w(elements(weights) * size),
        dx(x.size()), dw(w.size()), db(static_cast<std::size_t>(l.oc) * size);
    const dims pads(l.map.size(), l.kernel / 2), strides(l.map.size(), l.stride);
    const dims pads_end(l.map.size(), l.stride == 1 ? l.kernel / 2 : (l.kernel - 1) / 2);
    const attributes attrs{.strides = strides,
        .pads_begin = pads,
        .pads_end = pads_end,
        .groups = l.groups,
        .data_format = channels_last ? "NXC" : "NCX",
        .weights_format = channels_last ? "XIO" : "OIX"};
    const tensor bias_place(db.data(), type, {l.oc});
    const logical_tensor ls(0, type, src), ld(1, type, dst), lw(2, type, weights),
        lb(3, type, {l.oc});
    const compile_options opts{.on = &on}, with_bias{.diff_bias = with.bias, .on = &on};
    std::vector<logical_tensor> both{ls, lw}, one{lw};
    std::vector<tensor> both_out{{dx.data(), type, src}, {dw.data(), type, weights}},
        one_out{{dw.data(), type, weights}};
    if (with.bias) {
        both.push_back(lb), one.push_back(lb);
        both_out.push_back(bias_place), one_out.push_back(bias_place);
    }
    const auto joint = compile_backward(op_kind::convolution, {ls, ld, lw}, both, attrs, opts);
    const auto data = compile(op_kind::convolution_backward_data, {ld, lw}, {ls}, attrs, opts);
    const auto gradient =
        compile(op_kind::convolution_backward_weights, {ls, ld}, one, attrs, with_bias);
    const tensor ts(x.data(), type, src), td(y.data(), type, dst), tw(w.data(), type, weights);
    const stream s(on);
    double together = 1e9, apart = 1e9, data_alone = 1e9;
    for (int round = 0; round < with.rounds; ++round) {
        empty_caches();
        together = std::min(together, seconds([&] { joint.execute(s, {ts, td, tw}, both_out); }));
        empty_caches();
        const double first = seconds([&] { data.execute(s, {td, tw}, {both_out[0]}); });
        const double second = seconds([&] { gradient.execute(s, {ts, td}, one_out); });
        if (first + second < apart) apart = first + second, data_alone = first;
    }
    const double limit =
        seconds_per_byte() * static_cast<double>(x.size() + y.size() + dx.size()) / with.threads;
    std::printf("| %-32s | %-4s %s | %6.2f + %6.2f = %7.2f | %7.2f | %5.2f | %7.2f |\n", l.name,
        std::string(to_string(type)).c_str(), channels_last ? "NXC" : "NCX", data_alone * 1e3,
        (apart - data_alone) * 1e3, apart * 1e3, together * 1e3, apart / together, limit * 1e3);
    std::fflush(stdout);
}

settings parse(int argc, char **argv) {
    settings s;
    for (int i = 1; i < argc; ++i) {
        const std::string_view option = argv[i];
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (option == "--no-bias")
            s.bias = false;
        else if (option == "--threads")
            s.threads = std::max(1, std::atoi(value)), ++i;
        else if (option == "--rounds")
            s.rounds = std::max(1, std::atoi(value)), ++i;
        else if (option == "--mb")
            s.mb = std::max(1, std::atoi(value)), ++i;
        else if (option == "--only")
            s.only = value, ++i;
        else
            std::fprintf(stderr,
                "convgrad-joint [--threads N] [--rounds N] [--only TEXT] [--mb N] [--no-bias]\n"),
                std::exit(2);
    }
    return s;
}

}  // namespace

int main(int argc, char **argv) {
    const settings with = parse(argc, argv);
    const engine on(engine_options{.threads = with.threads});
    std::printf("reading two arrays and writing one: %.1f GB/s\n", 1e-9 / seconds_per_byte());
    std::printf("| layer | type | separate: data + weights, ms | joint, ms | ratio | limit, ms |\n"
                "| --- | --- | --- | --- | --- | --- |\n");
    for (const layer &l : layers)
        for (data_type type : {data_type::f32, data_type::bf16, data_type::f16})
            for (bool channels_last : {true, false}) {
                const std::string label = std::string(l.name) + " " + std::string(to_string(type))
                                          + (channels_last ? " NXC" : " NCX");
                if (label.find(with.only) != std::string::npos)
                    measure(l, type, channels_last, with, on);
            }
    return 0;
}
