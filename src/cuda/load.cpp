#include "cuda/load.hpp"

#include <atomic>
#include <mutex>

#include <dlfcn.h>

#include <convgrad/error.hpp>
#include <convgrad/version.hpp>

#include "cuda/entry.hpp"

namespace convgrad::cuda {
namespace {

constexpr const char *file_name = "libconvgrad_cuda.so." CONVGRAD_SOVERSION;

[[noreturn]] void refuse(const std::string &why) {
    throw error(error_code::unsupported, "engine: kind is cuda, but " + why);
}

/// The folder of the file that holds this code.
std::string own_folder() {
    Dl_info found{};
    if (dladdr(reinterpret_cast<const void *>(&load_backend), &found) == 0
        || found.dli_fname == nullptr)
        return {};
    const std::string file = found.dli_fname;
    const std::size_t slash = file.rfind('/');
    return slash == std::string::npos ? std::string() : file.substr(0, slash + 1);
}

/// Beside this file; where libraries are installed, seen from a program; where the system looks.
void *open_object() {
    std::string tried;
    const std::string own = own_folder();
    for (const std::string &folder :
        {own, own + "../" CONVGRAD_LIBDIR "/", own + "../lib/", std::string()}) {
        if (void *const object = dlopen((folder + file_name).c_str(), RTLD_NOW | RTLD_LOCAL))
            return object;
        const char *why = dlerror();
        // The first reason is the one that tells; the others say where else it was not.
        if (tried.empty()) tried = why == nullptr ? "unknown" : why;
    }
    refuse("the CUDA engine " + std::string(file_name) + " cannot be loaded: " + tried
           + "; it is built where a CUDA toolkit is found (CMake option CONVGRAD_CUDA)");
}

std::atomic<const entry *> loaded{nullptr};

/// Loaded once, never unloaded.
const entry &the_entry() {
    if (const entry *there = loaded.load(std::memory_order_acquire)) return *there;
    static std::mutex guard;
    const std::lock_guard lock(guard);
    if (const entry *there = loaded.load(std::memory_order_acquire)) return *there;
    void *const object = open_object();
    const auto find = reinterpret_cast<const entry *(*)()>(dlsym(object, entry_name));
    if (find == nullptr) refuse(std::string(file_name) + " is no CUDA engine of this library");
    const entry *const offered = find();
    if (std::string_view(offered->version) != CONVGRAD_VERSION_STRING)
        refuse(std::string(file_name) + " has version " + offered->version
               + "; this library has version " + CONVGRAD_VERSION_STRING);
    loaded.store(offered, std::memory_order_release);
    return *offered;
}

}  // namespace

std::shared_ptr<const engines::backend> load_backend(const engine_options &options) {
    return the_entry().make(options);
}

void release_scratch() noexcept {
    if (const entry *there = loaded.load(std::memory_order_acquire)) there->release_scratch();
}

std::vector<std::string> describe_devices() {
    return the_entry().devices();
}

const device_tools &tools() {
    return *the_entry().tools;
}

}  // namespace convgrad::cuda
