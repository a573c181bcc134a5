// Times of layers on a GPU: convgrad_cuda_bench [--cudnn] < LAYERS, one a line:
//   name mb groups ic oc size kernel stride pad type layout [math [algorithm]]
// (size, kernel, stride and pad as one number for both axes, or as two: 1x4096; passes that the
// algorithm does not take are left out; --cudnn: an installed cuDNN may compute)
// with channels per group, type f32, bf16 or f16, layout nxc or ncx. Writes comma-separated values:
// name, pass, type, layout, algorithm, milliseconds (median), share of the copy rate, TFLOP/s.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <sstream>
#include <vector>

#include <dlfcn.h>

#include <convgrad/error.hpp>

#include "cuda/cudnn_device.hpp"
#include "cuda/plan.hpp"

namespace convgrad {
namespace {

using conv::pass;
using conv::problem;

template <typename Function>
Function find(const char *name) {
    static void *const library = dlopen("libcuda.so.1", RTLD_NOW);
    return reinterpret_cast<Function>(dlsym(library, name));
}

struct functions {
    CUresult (*alloc)(CUdeviceptr *, std::size_t) = find<decltype(alloc)>("cuMemAlloc_v2");
    CUresult (*free)(CUdeviceptr) = find<decltype(free)>("cuMemFree_v2");
    CUresult (*fill)(CUdeviceptr, unsigned short, std::size_t) = find<decltype(fill)>(
        "cuMemsetD16_v2");
    CUresult (*copy_in)(CUdeviceptr, const void *, std::size_t) = find<decltype(copy_in)>(
        "cuMemcpyHtoD_v2");
    CUresult (*copy)(CUdeviceptr, CUdeviceptr, std::size_t, CUstream) = find<decltype(copy)>(
        "cuMemcpyDtoDAsync_v2");
    CUresult (*settle)() = find<decltype(settle)>("cuCtxSynchronize");
    CUresult (*make_event)(CUevent *, unsigned) = find<decltype(make_event)>("cuEventCreate");
    CUresult (*record)(CUevent, CUstream) = find<decltype(record)>("cuEventRecord");
    CUresult (*wait)(CUevent) = find<decltype(wait)>("cuEventSynchronize");
    CUresult (*elapsed)(float *, CUevent, CUevent) = find<decltype(elapsed)>("cuEventElapsedTime");
};

void must(CUresult code) {
    if (code != CUDA_SUCCESS)
        throw error(error_code::device_failure, cuda::the_driver().words(code));
}

/// Memory of small random values.
class memory {
public:
    memory(const functions &cu, std::size_t bytes, data_type type) : cu_(cu) {
        must(cu.alloc(&at_, bytes + 256));
        std::vector<unsigned> values(std::min<std::size_t>(bytes / 4 + 64, 1U << 20));
        unsigned state = 12345;
        for (unsigned &v : values) {
            state = state * 1664525U + 1013904223U;
            const unsigned r = state;
            // Numbers between 0.5 and 1 of both signs; in f16 between 1/128 and 1/64, so that no
            // result of a pass, which is what the next one reads, is too large for it.
            if (type == data_type::f32)
                v = 0x3f000000U | (r & 0x807fffffU);
            else if (type == data_type::bf16)
                v = 0x3f003f00U | (r & 0x807f807fU);
            else
                v = 0x20002000U | (r & 0x83ff83ffU);
        }
        std::size_t done = std::min(bytes, values.size() * 4 - 256);
        must(cu.copy_in(at_, values.data(), done));
        for (std::size_t some = 0; done < bytes; done += some) {
            some = std::min(bytes - done, done);
            must(cu.copy(at_ + done, at_, some, nullptr));
        }
        must(cu.settle());
    }
    ~memory() { cu_.free(at_); }
    memory(const memory &) = delete;
    memory &operator=(const memory &) = delete;
    [[nodiscard]] void *data() const { return reinterpret_cast<void *>(at_); }

private:
    const functions &cu_;
    CUdeviceptr at_ = 0;
};

struct timer {
    timer(const functions &f, const cuda::lane &on) : cu(f), lane(on) {
        must(cu.make_event(&first, 0));
        must(cu.make_event(&last, 0));
    }
    /// Of the device alone: it is busy until all is queued.
    template <typename Work>
    double median_ms(Work &&work) {
        cuda::peak_args busy{};
        busy.rounds = 1000;  // about 0.15 ms
        CUstream stream = lane.stream();
        std::vector<float> times;
        for (int i = 0; i < 4; ++i) work();
        for (int i = 0; i < 15; ++i) {
            lane.launch(cuda::kernel::peak_fma, 1, cuda::peak_threads, &busy);
            must(cu.record(first, stream));
            work();
            must(cu.record(last, stream));
            must(cu.wait(last));
            float ms = 0;
            must(cu.elapsed(&ms, first, last));
            times.push_back(ms);
        }
        std::sort(times.begin(), times.end());
        return times[times.size() / 2];
    }
    const functions &cu;
    const cuda::lane &lane;
    CUevent first = nullptr, last = nullptr;
};

void set_strides(conv::data_strides &s, bool nxc, dim channels, dim rows, dim columns) {
    s.c = nxc ? 1 : rows * columns;
    s.x[2] = nxc ? channels : 1;
    s.x[1] = s.x[2] * columns;
    s.x[0] = s.x[1] * rows;
    s.n = channels * rows * columns;
}

struct layer {
    std::string name, layout;
    problem p;
    std::string algorithm;
};

/// "7": both axes; "1x31": one after the other.
struct both {
    dim y = 0, x = 0;
};
std::istream &operator>>(std::istream &in, both &to) {
    std::string text;
    in >> text;
    std::istringstream parts(text);
    char by = 0;
    if (!(parts >> to.y)) in.setstate(std::ios::failbit);
    if (!(parts >> by >> to.x)) to.x = to.y;
    return in;
}

bool read(const std::string &line, layer &l) {
    std::istringstream in(line);
    std::string type, math = "accurate";
    both size, kernel, stride, pad;
    problem &p = l.p;
    if (!(in >> l.name >> p.mb >> p.groups >> p.ic >> p.oc >> size >> kernel >> stride >> pad
            >> type >> l.layout))
        return false;
    in >> math >> l.algorithm;
    p.type = p.out_type = type == "f32"    ? data_type::f32
                          : type == "bf16" ? data_type::bf16
                                           : data_type::f16;
    p.math = math == "strict" ? math_mode::strict
             : math == "fast" ? math_mode::fast
                              : math_mode::accurate;
    const auto out = [](dim length, dim taps, dim step, dim padding) {
        return (length + 2 * padding - taps) / step + 1;
    };
    p.x[1] = {size.y, out(size.y, kernel.y, stride.y, pad.y), kernel.y, stride.y, 1, pad.y};
    p.x[2] = {size.x, out(size.x, kernel.x, stride.x, pad.x), kernel.x, stride.x, 1, pad.x};
    const bool nxc = l.layout == "nxc";
    set_strides(p.src, nxc, p.groups * p.ic, size.y, size.x);
    set_strides(p.dst, nxc, p.groups * p.oc, p.x[1].dst, p.x[2].dst);
    // As PyTorch lays out weights: channels last beside channels last.
    p.weights.i = nxc ? 1 : kernel.y * kernel.x;
    p.weights.k = {0, nxc ? kernel.x * p.ic : kernel.x, nxc ? p.ic : 1};
    p.weights.o = p.ic * kernel.y * kernel.x;
    p.weights.g = p.oc * p.weights.o;
    return true;
}

void measure(const functions &cu, cuda::lane &lane, const cuda::architecture &arch, layer &l,
    double copy_rate) {
    problem &p = l.p;
    const std::size_t element = p.type == data_type::f32 ? 4 : 2;
    const auto bytes = [&](dim n) { return static_cast<std::size_t>(n) * element; };
    const dim src = p.mb * p.src.n, dst = p.mb * p.dst.n, weights = p.groups * p.weights.g;
    memory a(cu, bytes(src), p.type), b(cu, bytes(dst), p.type), w(cu, bytes(weights), p.type);
    timer clock(cu, lane);
    static constexpr const char *names[] = {"forward", "data", "weights"};
    for (const pass what : {pass::forward, pass::backward_data, pass::backward_weights}) {
        p.what = what;
        std::unique_ptr<const engines::plan> plan;
        try {
            plan = cuda::make_plan(p, arch, {.only_algorithm = l.algorithm});
        } catch (const error &e) {
            if (l.algorithm.empty()) throw;
            std::fprintf(stderr, "%s: %s\n", l.name.c_str(), e.what());
            continue;
        }
        memory scratch(cu, plan->workspace(), p.type);
        const conv::buffers data{a.data(), w.data(), b.data(), nullptr, nullptr};
        const double ms = clock.median_ms([&] { plan->execute({&data, 1}, scratch.data(), lane); });
        std::printf("%s,%s,%s,%s,%s,%.4f,%.2f,%.1f\n", l.name.c_str(),
            names[static_cast<int>(what)], std::string(to_string(p.type)).c_str(), l.layout.c_str(),
            std::string(plan->algorithm()).c_str(), ms,
            static_cast<double>(bytes(src + dst + weights)) / (ms * 1e-3) / copy_rate,
            2 * conv::macs(p) / ms / 1e9);
        std::fflush(stdout);
    }
}

int run(bool cudnn) {
    const cuda::device &device = cuda::the_device(0);
    cuda::architecture arch = device.arch;
    if (cudnn) arch.cudnn_here = &cuda::cudnn_device::of(device);
    arch.cudnn = cudnn;
    const cuda::current here(device);
    CUstream stream = nullptr;
    must(cuda::the_driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    cuda::lane lane(device, stream);
    const functions cu;
    double copy_rate = 0;
    {
        constexpr std::size_t bytes = std::size_t{2} << 30;
        memory from(cu, bytes, data_type::f32), to(cu, bytes, data_type::f32);
        timer clock(cu, lane);
        const double ms = clock.median_ms([&] {
            must(cu.copy(reinterpret_cast<CUdeviceptr>(to.data()),
                reinterpret_cast<CUdeviceptr>(from.data()), bytes, stream));
        });
        copy_rate = 2.0 * static_cast<double>(bytes) / (ms * 1e-3);
        std::fprintf(stderr, "%s: copies %.2f TB/s\n", device.title().c_str(), copy_rate / 1e12);
    }
    for (std::string line; std::getline(std::cin, line);) {
        layer l;
        if (read(line, l)) measure(cu, lane, arch, l, copy_rate);
    }
    return 0;
}

}  // namespace
}  // namespace convgrad

int main(int count, char **arguments) {
    try {
        return convgrad::run(count > 1 && std::string_view(arguments[1]) == "--cudnn");
    } catch (const std::exception &e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
}
