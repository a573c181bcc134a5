#include "cuda/cudnn_library.hpp"

#include <dlfcn.h>

#include <convgrad/error.hpp>

namespace convgrad::cuda {
namespace {

constexpr const char *file_name = "libcudnn.so.9";

[[noreturn]] void refuse(const std::string &why) {
    throw error(
        error_code::unsupported, "engine: cudnn is asked for, but it cannot be used: " + why);
}

/// Never unloaded, as the driver. One that the process has already (PyTorch's, say) is the one to
/// use: two would not share their code on the device.
cudnn_library load() {
    void *library = dlopen(file_name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (library == nullptr) library = dlopen(file_name, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) refuse(dlerror());
    cudnn_library made;
    const auto find = [&](auto &function, const char *name) {
        function =
            reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
        if (function == nullptr) refuse(std::string(file_name) + " lacks " + name);
    };
#define CONVGRAD_FIND(name) find(made.name, #name)
    CONVGRAD_FIND(cudnnCreate);
    CONVGRAD_FIND(cudnnSetStream);
    CONVGRAD_FIND(cudnnGetVersion);
    CONVGRAD_FIND(cudnnGetErrorString);
    CONVGRAD_FIND(cudnnBackendCreateDescriptor);
    CONVGRAD_FIND(cudnnBackendDestroyDescriptor);
    CONVGRAD_FIND(cudnnBackendFinalize);
    CONVGRAD_FIND(cudnnBackendSetAttribute);
    CONVGRAD_FIND(cudnnBackendGetAttribute);
    CONVGRAD_FIND(cudnnBackendExecute);
#undef CONVGRAD_FIND
    const std::size_t version = made.cudnnGetVersion();
    if (version < 90000)
        refuse("it is version " + std::to_string(version) + "; 9.0 or newer is needed");
    return made;
}

}  // namespace

const cudnn_library &the_cudnn() {
    // Tried again after a failure, as the driver is.
    static const cudnn_library loaded = load();
    return loaded;
}

}  // namespace convgrad::cuda
