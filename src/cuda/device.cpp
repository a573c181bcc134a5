#include "cuda/device.hpp"

#include <map>
#include <mutex>
#include <span>

#include <convgrad/error.hpp>

#include "cuda/depthwise.hpp"
#include "cuda/images.hpp"
#include "cuda/kernels/banded_args.hpp"
#include "cuda/kernels/fold_args.hpp"
#include "cuda/kernels/halo_args.hpp"
#include "cuda/kernels/ring_args.hpp"
#include "cuda/pixels.hpp"
#include "cuda/pointwise.hpp"

namespace convgrad::cuda {
namespace {

/// Scratch that a device keeps for the next execution.
constexpr std::size_t kept_scratch = std::size_t{256} << 20;

struct registry {
    std::mutex guard;
    std::map<int, std::unique_ptr<device>> devices;
};

/// Never destroyed: objects with static lifetime may still compute while the program ends.
registry &all_devices() {
    static auto *const made = new registry;
    return *made;
}

int attribute(CUdevice of, CUdevice_attribute which) {
    int value = 0;
    the_driver().cuDeviceGetAttribute(&value, which, of);
    return value;
}

/// All kernels, loaded now: nothing may be loaded while a caller captures a graph.
void load_kernels(device &d) {
    const driver &cu = the_driver();
    for (const image &code : images()) {
        CUmodule module = nullptr;
        d.check(cu.cuModuleLoadData(&module, code.code), "loading kernels");
        for (std::size_t i = 0; i < d.functions.size(); ++i) {
            const auto which = static_cast<kernel>(i);
            if (file_of(which) != code.file) continue;
            d.check(
                cu.cuModuleGetFunction(&d.functions[i], module, name_of(which)), name_of(which));
            int registers = 0;  // asking makes the driver load it
            d.check(cu.cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, d.functions[i]),
                name_of(which));
        }
    }
    const auto allow = [&](kernel which, int bytes) {
        d.check(cu.cuFuncSetAttribute(d.functions[static_cast<std::size_t>(which)],
                    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes),
            name_of(which));
    };
    const auto allow_all = [&](kernel first, kernel last, int bytes) {
        for (auto i = static_cast<int>(first); i <= static_cast<int>(last); ++i)
            allow(static_cast<kernel>(i), bytes);
    };
    // More shared memory than kernels get unasked.
    allow_all(kernel::dense_data_f32, kernel::dense_data_tf32, dense_shared);
    allow_all(kernel::dense_weights_f32, kernel::dense_weights_tf32, dense_weights_shared);
    allow_all(kernel::staged_data_k3p_f32, kernel::staged_weights_k7s2c_f16, staged_most_shared);
    allow_all(kernel::ring_data_k3_f32, kernel::ring_weights_k7_f32, ring_most_shared);
    if (has_banded(d.arch))
        allow_all(kernel::banded_data_k3p_bf16, kernel::banded_weights_k7c_f16, banded_most_shared);
    allow_all(kernel::pixels_data_n4p_bf16, kernel::pixels_weights_c4c_f32, pixels_shared(d.arch));
    if (!d.arch.warpgroups) return;
    allow_all(kernel::wgmma_data_n32_f32, kernel::wgmma_data_n128_tf32, wgmma_shared(128, 2));
    allow_all(
        kernel::wgmma_weights_n32_f32, kernel::wgmma_weights_n128_tf32, wgmma_roles_shared(128, 2));
    allow_all(kernel::pointwise_data_n64_f32, kernel::pointwise_weights_n64_tf32,
        std::max(pointwise_tiles<64, true>::shared, pointwise_tiles<64, false>::shared));
    allow_all(kernel::pointwise_data_n128_f32, kernel::pointwise_weights_n128_tf32,
        pointwise_tiles<128, true>::shared);
    allow_all(kernel::whole_planes_bf16, kernel::whole_pixels_turned_f16, whole_tiles<64>::shared);
    allow_all(kernel::fold_n32_f32, kernel::fold_n64_tf32, fold_most_shared);
    for (const kernel halo : {kernel::halo_bf16, kernel::halo_f16})
        allow(halo, halo_tiles::most_shared);
    for (const kernel first : {kernel::bulk_data_256x64_bf16, kernel::bulk_turned_256x64_bf16,
             kernel::bulk_weights_256x64_bf16, kernel::pointwise_data_256x64_bf16,
             kernel::pointwise_turned_256x64_bf16, kernel::pointwise_weights_256x64_bf16})
        for (const bulk_tile_size &tile : bulk_tile_sizes)
            for (const data_type type : {data_type::bf16, data_type::f16})
                allow(bulk_kernel(first, tile, type), tile.shared);
}

void make_pool(device &d) {
    const driver &cu = the_driver();
    CUmemPoolProps wanted{};
    wanted.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location = {CU_MEM_LOCATION_TYPE_DEVICE, d.handle};
    d.check(cu.cuMemPoolCreate(&d.pool, &wanted), "making a memory pool");
    cuuint64_t keep = kept_scratch;
    d.check(cu.cuMemPoolSetAttribute(d.pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep),
        "making a memory pool");
}

std::unique_ptr<device> open_device(int index) {
    const driver &cu = the_driver();
    auto made = std::make_unique<device>();
    device &d = *made;
    d.index = index;
    d.check(cu.cuDeviceGet(&d.handle, index), "opening the device");
    char name[256] = "";
    d.check(cu.cuDeviceGetName(name, sizeof name - 1, d.handle), "opening the device");
    d.name = name;
    const int major = attribute(d.handle, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    const int minor = attribute(d.handle, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    if (major < 8)
        throw error(error_code::unsupported, "engine: " + d.title() + " has compute capability "
                                                 + std::to_string(major) + "."
                                                 + std::to_string(minor) + "; 8.0 is the least");
    d.arch = architecture_of(major, minor);
    d.multiprocessors = attribute(d.handle, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    d.check(cu.cuDeviceTotalMem(&d.memory, d.handle), "opening the device");
    d.check(cu.cuDevicePrimaryCtxRetain(&d.context, d.handle), "opening the device");
    const current here(d);
    load_kernels(d);
    make_pool(d);
    return made;
}

}  // namespace

const char *name_of(kernel k) {
    static constexpr const char *names[] = {
#define CONVGRAD_KERNEL(file, name) #name,
#include "cuda/kernels/kernels.inc"
#undef CONVGRAD_KERNEL
    };
    return names[static_cast<std::size_t>(k)];
}

std::string_view file_of(kernel k) {
    static constexpr std::string_view files[] = {
#define CONVGRAD_KERNEL(file, name) #file,
#include "cuda/kernels/kernels.inc"
#undef CONVGRAD_KERNEL
    };
    return files[static_cast<std::size_t>(k)];
}

architecture architecture_of(int major, int minor) {
    // Nominal boards: A100, H200. What is newer is taken for the newest known.
    if (major == 8) return {major, minor, 9.7e12, 156e12, 1.6e12, false};
    return {
        major, minor, 30e12, 400e12, 4.2e12, CONVGRAD_CUDA_WARPGROUPS && major == 9 && minor == 0};
}

std::string device::title() const {
    return "cuda device " + std::to_string(index) + (name.empty() ? "" : " (" + name + ")");
}

void device::check(CUresult code, const char *what) const {
    if (code == CUDA_SUCCESS) return;
    const std::string text = title() + ": " + what + ": " + the_driver().words(code);
    if (code == CUDA_ERROR_OUT_OF_MEMORY) throw error(error_code::out_of_memory, text);
    throw error(error_code::device_failure,
        is_lasting(code) ? text
                               + "; at or after work that was queued before; the device cannot be "
                                 "used by this process any more"
                         : text);
}

int device_count() {
    int count = 0;
    const driver &cu = the_driver();
    if (const CUresult code = cu.cuDeviceGetCount(&count); code != CUDA_SUCCESS)
        throw error(error_code::unsupported,
            "engine: kind is cuda, but devices cannot be counted: " + cu.words(code));
    return count;
}

const device &the_device(int index) {
    const int count = device_count();
    if (count == 0)
        throw error(error_code::unsupported, "engine: kind is cuda, but there is no NVIDIA GPU");
    if (index < 0 || index >= count)
        throw error(error_code::invalid_argument, "engine: device is " + std::to_string(index)
                                                      + "; there are " + std::to_string(count)
                                                      + " CUDA devices, counted from 0");
    registry &all = all_devices();
    const std::lock_guard lock(all.guard);
    std::unique_ptr<device> &slot = all.devices[index];
    if (slot == nullptr) slot = open_device(index);
    return *slot;
}

void trim_pools() noexcept {
    registry &all = all_devices();
    const std::lock_guard lock(all.guard);
    for (const auto &[index, d] : all.devices)
        if (d != nullptr) the_driver().cuMemPoolTrimTo(d->pool, 0);
}

current::current(const device &on) {
    on.check(the_driver().cuCtxPushCurrent(on.context), "making the device current");
}

current::~current() {
    CUcontext popped = nullptr;
    the_driver().cuCtxPopCurrent(&popped);
}

}  // namespace convgrad::cuda
