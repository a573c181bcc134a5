#include "cuda/machine.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>
#include <stdexcept>

#include <dlfcn.h>

#include <convgrad/error.hpp>

#include "cuda/cudnn_device.hpp"
#include "cuda/depthwise.hpp"

namespace convgrad::test {
namespace {

constexpr std::size_t margin = 256;
constexpr unsigned char canary = 0xa5;

void must(CUresult code) {
    if (code != CUDA_SUCCESS) throw std::runtime_error(cuda::the_driver().words(code));
}

void *&pointer_of(conv::buffers &data, role r) {
    switch (r) {
    case role::src:
        return data.src;
    case role::weights:
        return data.weights;
    case role::dst:
        return data.dst;
    default:
        return data.bias;
    }
}

std::size_t bytes_of(const conv::problem &p, role r) {
    return static_cast<std::size_t>(span_of(p, r)) * size_of(type_of(p, r));
}

std::array<std::atomic<std::uint64_t>, static_cast<std::size_t>(cuda::kernel::count)> launches;
/// Not null: launches are listed, and do not happen.
std::vector<cuda::kernel> *listed = nullptr;

bool see_launch(cuda::kernel which) {
    if (listed != nullptr) {
        listed->push_back(which);
        return false;
    }
    ++launches[static_cast<std::size_t>(which)];
    return true;
}

/// Counts launches from the first test to the last.
class launch_record final : public testing::Environment {
public:
    void SetUp() override { cuda::watch_launches_for_testing(&see_launch); }
    void TearDown() override {
        cuda::watch_launches_for_testing(nullptr);
        const char *const path = std::getenv("CONVGRAD_CUDA_KERNELS");
        if (path == nullptr || !why_no_gpu().empty()) return;
        cuda::architecture here = cuda::the_device(0).arch;
        here.cudnn = why_no_cudnn().empty();
        std::ostringstream lines;  // in one piece: other programs append too
        for (std::size_t i = 0; i < launches.size(); ++i)
            if (const auto which = static_cast<cuda::kernel>(i); has_work(which, here))
                lines << cuda::name_of(which) << ' ' << launches[i] << '\n';
        std::ofstream(path, std::ios::app) << lines.str();
    }
};
const auto *const record = testing::AddGlobalTestEnvironment(new launch_record);

}  // namespace

bool has_work(cuda::kernel which, const cuda::architecture &on) {
    const std::string_view name = cuda::name_of(which), file = cuda::file_of(which);
    if (file == "peaks") return false;
    if (file == "care") return on.cudnn;
    if (file.starts_with("banded")) return cuda::has_banded(on);
    const bool of_warpgroups = file.starts_with("wgmma") || name.starts_with("fold_weights")
                               || name.starts_with("merge_weights") || name == "turn_f32";
    return !of_warpgroups || on.warpgroups;
}

std::uint64_t launches_of(cuda::kernel which) {
    return launches[static_cast<std::size_t>(which)];
}

const std::string &why_no_gpu() {
    static const std::string why = [] {
        try {
            cuda::the_device(0);
            return std::string();
        } catch (const error &e) {
            return std::string(e.what());
        }
    }();
    return why;
}

const std::string &why_no_cudnn() {
    static const std::string why = [] {
        try {
            cuda::the_cudnn();
            return std::string();
        } catch (const error &e) {
            return std::string(e.what());
        }
    }();
    return why;
}

std::uint64_t sample_step() {
    const char *const sample = std::getenv("CONVGRAD_CUDA_SAMPLE");
    return sample == nullptr ? 1 : static_cast<std::uint64_t>(std::max(1, std::atoi(sample)));
}

const test_driver &tests_driver() {
    static const test_driver made = [] {
        void *const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        test_driver d{};
        const auto find = [&](auto &function, const char *name) {
            function =
                reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
            if (function == nullptr) throw std::runtime_error(name);
        };
        find(d.alloc, "cuMemAlloc_v2");
        find(d.alloc_managed, "cuMemAllocManaged");
        find(d.alloc_host, "cuMemAllocHost_v2");
        find(d.free, "cuMemFree_v2");
        find(d.copy_in, "cuMemcpyHtoD_v2");
        find(d.copy_out, "cuMemcpyDtoH_v2");
        find(d.fill, "cuMemsetD8_v2");
        find(d.begin_capture, "cuStreamBeginCapture_v2");
        find(d.end_capture, "cuStreamEndCapture");
        find(d.instantiate, "cuGraphInstantiateWithFlags");
        find(d.launch_graph, "cuGraphLaunch");
        find(d.memory_info, "cuMemGetInfo_v2");
        find(d.current, "cuCtxGetCurrent");
        d.answer = reinterpret_cast<decltype(d.answer)>(dlsym(library, "convgrad_emulator_answer"));
        return d;
    }();
    return made;
}

gpu_memory::~gpu_memory() {
    if (base_ == 0) return;
    const cuda::current here(cuda::the_device(device_));
    tests_driver().free(base_);
}

void gpu_memory::resize(std::size_t bytes, std::size_t offset) {
    const cuda::current here(cuda::the_device(device_));
    if (bytes > room_ || base_ == 0) {
        if (base_ != 0) must(tests_driver().free(base_));
        base_ = 0;
        room_ = bytes + bytes / 2;
        must(tests_driver().alloc(&base_, room_ + 3 * margin));
    }
    bytes_ = bytes;
    start_ = margin + offset;
    must(tests_driver().fill(base_, canary, start_));
    must(tests_driver().fill(base_ + start_ + bytes, canary, margin));
}

void *gpu_memory::data() const {
    return reinterpret_cast<void *>(base_ + start_);
}

void gpu_memory::copy_in(const void *from, std::size_t bytes) {
    const cuda::current here(cuda::the_device(device_));
    if (bytes > 0) must(tests_driver().copy_in(base_ + start_, from, bytes));
}

void gpu_memory::copy_out(void *to, std::size_t bytes) const {
    const cuda::current here(cuda::the_device(device_));
    if (bytes > 0) must(tests_driver().copy_out(to, base_ + start_, bytes));
}

void gpu_memory::fill(unsigned char with) {
    const cuda::current here(cuda::the_device(device_));
    if (bytes_ > 0) must(tests_driver().fill(base_ + start_, with, bytes_));
}

bool gpu_memory::is_intact() const {
    const cuda::current here(cuda::the_device(device_));
    unsigned char seen[2 * margin];
    must(tests_driver().copy_out(seen, base_ + start_ - margin, margin));
    must(tests_driver().copy_out(seen + margin, base_ + start_ + bytes_, margin));
    for (const unsigned char byte : seen)
        if (byte != canary) return false;
    return true;
}

gpu_bench::gpu_bench(int device)
    : device_(cuda::the_device(device)), arch_(device_.arch), lane_(device_, nullptr) {
    for (gpu_memory &m : tensors_) m.move_to(device);
    workspace_.move_to(device);
}

void gpu_bench::allow_cudnn() {
    arch_.cudnn_here = &cuda::cudnn_device::of(device_);
    arch_.cudnn = true;
}

std::unique_ptr<const engines::plan> gpu_bench::queue(
    workbench &on, std::string_view algorithm, std::size_t workspace_limit) {
    const conv::problem &p = on.problem();
    auto plan =
        cuda::make_plan(p, arch_, {.workspace = workspace_limit, .only_algorithm = algorithm});
    description_ = plan->describe();
    on.restore_outputs();
    conv::buffers host = on.data();
    data_ = {};
    for (const role r : all_roles) {
        gpu_memory &m = tensors_[static_cast<std::size_t>(r)];
        m.resize(bytes_of(p, r), misaligned_ ? size_of(type_of(p, r)) : 0);
        const void *from = r == role::add ? host.add : pointer_of(host, r);
        if (from == nullptr) continue;
        m.copy_in(from, bytes_of(p, r));
        if (r != role::add) pointer_of(data_, r) = m.data();
    }
    const bool in_place = host.add != nullptr && host.add == pointer_of(host, output_of(p));
    if (host.add != nullptr)
        data_.add = in_place ? pointer_of(data_, output_of(p))
                             : tensors_[static_cast<std::size_t>(role::add)].data();
    workspace_.resize(plan->workspace());
    workspace_.fill(0xff);
    plan->execute({&data_, 1}, workspace_.data(), lane_);
    return plan;
}

void gpu_bench::collect(workbench &on) {
    lane_.wait();
    const conv::problem &p = on.problem();
    conv::buffers host = on.data();
    for (const role r : all_roles) {
        const gpu_memory &m = tensors_[static_cast<std::size_t>(r)];
        if (!m.is_intact()) throw std::logic_error("written beside a tensor: " + to_text(p));
        if (r == role::add || pointer_of(data_, r) == nullptr || !on.is_written(r)) continue;
        m.copy_out(pointer_of(host, r), bytes_of(p, r));
    }
    if (!workspace_.is_intact())
        throw std::logic_error("written beside the workspace: " + to_text(p));
}

std::string gpu_bench::run(workbench &on, std::string_view algorithm, std::size_t workspace_limit) {
    const auto plan = queue(on, algorithm, workspace_limit);
    collect(on);
    return std::string(plan->algorithm());
}

std::vector<cuda::kernel> gpu_bench::kernels_of(workbench &on, std::string_view algorithm) {
    std::vector<cuda::kernel> all;
    struct listing {
        explicit listing(std::vector<cuda::kernel> &to) { listed = &to; }
        ~listing() { listed = nullptr; }
    } const here(all);
    queue(on, algorithm, std::numeric_limits<std::size_t>::max());
    return all;
}

void plant_special_values(workbench &bench, rng &random) {
    const conv::problem &p = bench.problem();
    constexpr double inf = std::numeric_limits<double>::infinity();
    for (const role r : all_roles) {
        if (bench.is_written(r) || span_of(p, r) == 0 || !random.chance(0.5)) continue;
        dim offset = 0;
        for (const extent &e : extents_of(p, r))
            offset += random.between(0, e.length - 1) * e.stride;
        bench.write(r, offset, random.pick({std::nan(""), inf, -inf}));
    }
}

}  // namespace convgrad::test
