#include "train_device.hpp"

#include "cuda/load.hpp"
#include "engine/engine.hpp"

namespace convgrad::cli {

gpu_device::gpu_device(const engine &on) : number_(on.get().backend->facts().device) {}

void *gpu_device::allocate(std::size_t bytes) {
    return cuda::tools().allocate(number_, bytes);
}

void gpu_device::release(void *memory) noexcept {
    cuda::tools().release(number_, memory);
}

void gpu_device::copy_in(void *to, const void *from, std::size_t bytes) {
    cuda::tools().copy_in(number_, to, from, bytes);
}

void gpu_device::copy_out(void *to, const void *from, std::size_t bytes) {
    cuda::tools().copy_out(number_, to, from, bytes);
}

double gpu_device::run(const stream &on, const std::function<void()> &work) {
    const auto call = [](void *context) {
        (*static_cast<const std::function<void()> *>(context))();
    };
    return cuda::tools().seconds(on.get(), call, const_cast<std::function<void()> *>(&work));
}

}  // namespace convgrad::cli
