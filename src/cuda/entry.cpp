#include "cuda/entry.hpp"

#include <cstdlib>

#include <convgrad/error.hpp>
#include <convgrad/version.hpp>

#include "cuda/backend.hpp"

namespace convgrad::cuda {
namespace {

bool cudnn_by_environment() {
    const char *const text = std::getenv("CONVGRAD_CUDNN");
    const std::string_view value = text == nullptr ? "" : text;
    if (!value.empty() && value != "0" && value != "1")
        throw error(error_code::invalid_argument, "environment variable CONVGRAD_CUDNN is \""
                                                      + std::string(value)
                                                      + "\"; it must be 0 or 1");
    return value == "1";
}

std::shared_ptr<const engines::backend> make(const engine_options &options) {
    if (options.threads != 0 || options.pool != nullptr)
        throw error(error_code::invalid_argument,
            "engine: threads or a thread pool are given; a CUDA engine has threads of its own");
    const bool cudnn = cudnn_by_environment() || options.cudnn;
    return std::make_shared<backend>(the_device(options.device), cudnn);
}

std::vector<std::string> devices() {
    std::vector<std::string> lines;
    const int count = device_count();
    for (int i = 0; i < count; ++i) {
        const device &d = the_device(i);
        lines.push_back(d.name + ", compute capability " + std::to_string(d.arch.major) + "."
                        + std::to_string(d.arch.minor) + ", " + std::to_string(d.multiprocessors)
                        + " multiprocessors, " + std::to_string(d.memory >> 30) + " GiB");
    }
    return lines;
}

constexpr entry offered = {
    CONVGRAD_VERSION_STRING, &make, &trim_pools, &devices, &tools_of_devices};

}  // namespace

extern "C" CONVGRAD_API const entry *convgrad_cuda_entry() {
    return &offered;
}

}  // namespace convgrad::cuda
