#include "onednn/behind.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <link.h>
#include <string_view>

#include "op/message.hpp"

namespace convgrad::onednn {
namespace {

/// CONVGRAD_ONEDNN_LIBRARY, or null.
const char *asked_for() {
    const char *value = std::getenv("CONVGRAD_ONEDNN_LIBRARY");
    return value != nullptr && *value != '\0' ? value : nullptr;
}

bool wants_none() {
    const char *asked = asked_for();
    return asked != nullptr && std::strcmp(asked, "none") == 0;
}

/// The library that was asked for by name; loaded once and kept.
void *asked_library() {
    static void *const handle = [] {
        void *opened =
            wants_none() || !asked_for() ? nullptr : dlopen(asked_for(), RTLD_NOW | RTLD_LOCAL);
        if (opened == nullptr && asked_for() != nullptr && !wants_none())
            std::fprintf(stderr, "convgrad: CONVGRAD_ONEDNN_LIBRARY: %s\n", dlerror());
        return opened;
    }();
    return handle;
}

/// What a search of loaded libraries looks for.
struct search {
    const char *name;
    const void *own;
    void *found;
};

/// A library that was opened for one module only is not in the loader's order, and has different
/// names: libdnnl.so.3, libdnnl.so.3.6, libonednn_cpu_so.so, …
int look_into(dl_phdr_info *info, std::size_t, void *data) {
    auto &wanted = *static_cast<search *>(data);
    const std::string_view path = info->dlpi_name == nullptr ? "" : info->dlpi_name;
    const std::size_t slash = path.rfind('/');
    const std::string_view file = slash == path.npos ? path : path.substr(slash + 1);
    if (!file.starts_with("libdnnl") && !file.starts_with("libonednn")) return 0;
    void *handle = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) return 0;
    void *symbol = dlsym(handle, wanted.name);
    dlclose(handle);
    if (symbol != wanted.own) wanted.found = symbol;  // this library under oneDNN's name
    return wanted.found != nullptr ? 1 : 0;
}

const void *address_of(status (*function)(client_graph **, engine_kind_value)) {
    return reinterpret_cast<const void *>(function);
}

/// Keeps the file of a symbol open; null where it has none.
void *open_file_of(const void *symbol) {
    Dl_info info{};
    if (symbol == nullptr || dladdr(symbol, &info) == 0 || info.dli_fname == nullptr)
        return nullptr;
    return dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
}

const char *file_of(const void *symbol) {
    Dl_info info{};
    return dladdr(symbol, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "?";
}

/// Fills in all functions; the name of one that is missing and should not be, or null.
const char *load_functions(library &into, void *handle) {
    const char *missing = nullptr;
#define CONVGRAD_ONEDNN_LOAD(name)                                                                 \
    into.name = reinterpret_cast<decltype(into.name)>(dlsym(handle, "dnnl_graph_" #name));
#define CONVGRAD_ONEDNN_LOAD_NEEDED(name)                                                          \
    CONVGRAD_ONEDNN_LOAD(name)                                                                     \
    if (into.name == nullptr) missing = "dnnl_graph_" #name;
    CONVGRAD_ONEDNN_FUNCTIONS(CONVGRAD_ONEDNN_LOAD_NEEDED)
    CONVGRAD_ONEDNN_LATER_FUNCTIONS(CONVGRAD_ONEDNN_LOAD)
#undef CONVGRAD_ONEDNN_LOAD_NEEDED
#undef CONVGRAD_ONEDNN_LOAD
    return missing;
}

/// Whether a description that oneDNN fills in is one that this library reads.
bool speaks_the_same(const library &with) {
    constexpr std::size_t beyond = 64;
    alignas(tensor_description) unsigned char bytes[sizeof(tensor_description) + beyond];
    std::memset(bytes, 0x5a, sizeof(bytes));
    const std::int64_t sizes[] = {2, 3, 5}, strides[] = {15, 1, 3};
    auto *made = reinterpret_cast<tensor_description *>(bytes);
    if (with.logical_tensor_init_with_strides(
            made, 77, element_type::bf16, 3, sizes, strides, property_type::constant)
        != status::success)
        return false;
    tensor_description lt;
    std::memcpy(&lt, bytes, sizeof(lt));
    const auto untouched = [](unsigned char byte) { return byte == 0x5a; };
    return lt.id == 77 && lt.ndims == 3 && std::equal(sizes, sizes + 3, lt.dims)
           && lt.type == element_type::bf16 && lt.property == property_type::constant
           && lt.layout == layout_type::strided && std::equal(strides, strides + 3, lt.strides)
           && std::all_of(bytes + sizeof(lt), bytes + sizeof(bytes), untouched);
}

/// What is wrong with the library that was found; empty: nothing.
std::string fault_of(library &found, void *handle) {
    const char *missing = load_functions(found, handle);
    const auto version = reinterpret_cast<const version_info *(*)()>(dlsym(handle, "dnnl_version"));
    if (version == nullptr) return "it has no dnnl_version";
    const version_info &said = *version();
    constexpr unsigned sycl = 512;
    found.major = said.major;
    found.minor = said.minor;
    found.patch = said.patch;
    found.is_sycl = said.cpu_runtime == sycl;
    if (said.major != 3) return found.name() + "; 3.x is expected";
    if (missing != nullptr) return ops::cat(found.name(), " without ", missing);
    if (!speaks_the_same(found)) return found.name() + " describes tensors in another way";
    return {};
}

/// Whether graphs are shared with oneDNN: looked for once.
class decision {
public:
    const library *get() {
        if (made_.load(std::memory_order_acquire)) return chosen_;
        // oneDNN may call a function of this library while it is being asked.
        if (deciding_) return &found_;
        const std::unique_lock one_thread(lock_);
        if (made_.load(std::memory_order_relaxed)) return chosen_;
        deciding_ = true;
        chosen_ = find() ? &found_ : nullptr;
        deciding_ = false;
        made_.store(true, std::memory_order_release);
        return chosen_;
    }

private:
    bool find() {
        if (wants_none()) return false;
        const void *symbol =
            symbol_behind("dnnl_graph_graph_create", address_of(dnnl_graph_graph_create));
        void *handle = open_file_of(symbol);  // never closed: its functions are kept
        if (handle == nullptr) return false;  // also a oneDNN that was built without graphs
        const std::string fault = fault_of(found_, handle);
        if (fault.empty()) return true;
        std::fprintf(stderr,
            "convgrad: %s is no oneDNN that this drop-in can stand in front of: %s. Graphs are "
            "computed without it: ops other than convolutions are unsupported.\n",
            file_of(symbol), fault.c_str());
        return false;
    }

    std::mutex lock_;
    std::atomic<bool> made_ = false;
    static thread_local bool deciding_;
    library found_;
    const library *chosen_ = nullptr;
};

thread_local bool decision::deciding_ = false;

}  // namespace

std::string library::name() const {
    return ops::cat("oneDNN ", major, ".", minor, ".", patch);
}

void *symbol_behind(const char *name, const void *own) {
    if (void *asked = asked_library()) return dlsym(asked, name);
    if (void *next = dlsym(RTLD_NEXT, name); next != nullptr && next != own) return next;
    search wanted{name, own, nullptr};
    dl_iterate_phdr(look_into, &wanted);
    return wanted.found;
}

const library *behind() {
    static decision made;
    return made.get();
}

}  // namespace convgrad::onednn
