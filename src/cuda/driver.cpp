#include "cuda/driver.hpp"

#include <dlfcn.h>

#include <convgrad/error.hpp>

namespace convgrad::cuda {
namespace {

[[noreturn]] void refuse(const std::string &why) {
    throw error(error_code::unsupported,
        "engine: kind is cuda, but the driver of NVIDIA GPUs cannot be used: " + why);
}

/// Never unloaded: objects with static lifetime may still compute while the program ends.
driver load() {
    void *const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) refuse(dlerror());
    driver made;
#define CONVGRAD_TEXT(name) #name
    // cuda.h renames functions to their newest versions: the expanded name is the one to look for.
#define CONVGRAD_FIND(name)                                                                        \
    made.name = reinterpret_cast<decltype(made.name)>(dlsym(library, CONVGRAD_TEXT(name)));        \
    if (made.name == nullptr)                                                                      \
        refuse(std::string("it lacks ") + CONVGRAD_TEXT(name)                                      \
               + "; a driver for CUDA 12 or newer is needed");
    CONVGRAD_DRIVER_FUNCTIONS(CONVGRAD_FIND)
#undef CONVGRAD_FIND
    if (const CUresult code = made.cuInit(0); code != CUDA_SUCCESS) refuse(made.words(code));
    int version = 0;
    made.cuDriverGetVersion(&version);
    if (version < 12000)
        refuse("it supports CUDA " + std::to_string(version / 1000) + "."
               + std::to_string(version % 1000 / 10) + "; 12.0 or newer is needed");
    return made;
}

}  // namespace

std::string driver::words(CUresult code) const {
    const char *name = nullptr, *text = nullptr;
    cuGetErrorName(code, &name);
    cuGetErrorString(code, &text);
    std::string all = name == nullptr ? "error " + std::to_string(code) : name;
    if (text != nullptr) all.append(" (").append(text).append(")");
    return all;
}

const driver &the_driver() {
    // Tried again after a failure: a driver may be installed meanwhile.
    static const driver loaded = load();
    return loaded;
}

bool is_lasting(CUresult code) {
    switch (code) {
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
    case CUDA_ERROR_UNKNOWN:
        return true;
    default:
        return false;
    }
}

}  // namespace convgrad::cuda
