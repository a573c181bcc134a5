#include "onednn/runtime.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <unordered_set>

#include "onednn/behind.hpp"
#include "onednn/environment.hpp"
#include "onednn/guard.hpp"

namespace convgrad::onednn {
namespace {

/// Which handles are ours, and the allocators of all engines.
struct handle_table {
    std::shared_mutex lock;
    std::unordered_set<const void *> engines, streams;
    std::unordered_map<const void *, allocator> allocators;

    static handle_table &get() {
        // Never destroyed: clients may destroy engines while the program ends.
        static auto *table = new handle_table;
        return *table;
    }

    bool has(const std::unordered_set<const void *> &set, const void *handle) {
        const std::shared_lock reading(lock);
        return set.count(handle) != 0;
    }
};

/// The function of oneDNN behind ours; null where oneDNN is not loaded. Looked for again until it
/// is found, because a program may load oneDNN late.
template <typename Function>
class next_function {
public:
    constexpr next_function(const char *name, Function *own) : name_(name), own_(own) {}

    Function *get() {
        Function *known = found_.load(std::memory_order_acquire);
        if (known != nullptr) return known;
        known = reinterpret_cast<Function *>(
            symbol_behind(name_, reinterpret_cast<const void *>(own_)));
        found_.store(known, std::memory_order_release);
        return known;
    }

private:
    const char *name_;
    Function *own_;
    std::atomic<Function *> found_ = nullptr;
};

std::atomic<fpmath_mode> own_fpmath_mode = fpmath_mode::strict;

/// OMP_NUM_THREADS, where it says something and the library's own variable does not; else 0. Where
/// an OpenMP runtime is loaded it need not be asked for: the engine does what the runtime says.
int threads_from_environment() {
    const char *own = std::getenv("CONVGRAD_NUM_THREADS");
    const char *openmp = std::getenv("OMP_NUM_THREADS");
    if ((own != nullptr && *own != '\0') || openmp == nullptr) return 0;
    int threads = 0;
    // A list ("4,2") gives the number for each nesting level.
    std::from_chars(openmp, openmp + std::strlen(openmp), threads);
    return std::clamp(threads, 0, 1024);
}

engine make_engine(math_mode math) {
    engine_options options;
    options.math = math;
    const engine by_runtime(options);
    if (by_runtime.shares_threads()) return by_runtime;
    options.threads = threads_from_environment();
    return engine(options);
}

/// CONVGRAD_ONEDNN_MATH, for graphs of mode strict in front of oneDNN. It sums directly there, and
/// its clients may compare exact numbers: so does this library unless it is told that it need not.
math_mode math_in_front() {
    static constexpr math_mode modes[] = {math_mode::strict, math_mode::accurate, math_mode::fast};
    static const math_mode chosen = [] {
        std::array<std::string_view, std::size(modes)> words;
        std::transform(std::begin(modes), std::end(modes), words.begin(),
            [](math_mode mode) { return convgrad::to_string(mode); });
        return modes[word_from_environment("CONVGRAD_ONEDNN_MATH", words, 0)];
    }();
    return chosen;
}

/// f16 and tf32 keep more bits than bf16, which `fast` rounds to.
math_mode math_for(fpmath_mode mode) {
    if (mode == fpmath_mode::bf16 || mode == fpmath_mode::any) return math_mode::fast;
    if (mode == fpmath_mode::strict && behind() != nullptr) return math_in_front();
    return math_mode::accurate;
}

bool is_mode(fpmath_mode mode) {
    return mode >= fpmath_mode::strict && mode <= fpmath_mode::tf32;
}

}  // namespace
}  // namespace convgrad::onednn

using namespace convgrad::onednn;

CONVGRAD_ONEDNN_API std::size_t dnnl_engine_get_count(engine_kind_value kind);
CONVGRAD_ONEDNN_API status dnnl_engine_create(
    client_engine **engine, engine_kind_value kind, std::size_t index);
CONVGRAD_ONEDNN_API status dnnl_engine_get_kind(client_engine *engine, engine_kind_value *kind);
CONVGRAD_ONEDNN_API status dnnl_engine_destroy(client_engine *engine);
CONVGRAD_ONEDNN_API status dnnl_stream_create(
    client_stream **stream, client_engine *engine, unsigned flags);
CONVGRAD_ONEDNN_API status dnnl_stream_get_engine(
    const client_stream *stream, client_engine **engine);
CONVGRAD_ONEDNN_API status dnnl_stream_wait(client_stream *stream);
CONVGRAD_ONEDNN_API status dnnl_stream_destroy(client_stream *stream);
CONVGRAD_ONEDNN_API status dnnl_get_default_fpmath_mode(fpmath_mode *mode);
CONVGRAD_ONEDNN_API status dnnl_set_default_fpmath_mode(fpmath_mode mode);
CONVGRAD_ONEDNN_API status dnnl_set_verbose(int level);
CONVGRAD_ONEDNN_API const version_info *dnnl_version();

namespace {

constinit next_function next_engine_get_count("dnnl_engine_get_count", dnnl_engine_get_count);
constinit next_function next_engine_create("dnnl_engine_create", dnnl_engine_create);
constinit next_function next_engine_get_kind("dnnl_engine_get_kind", dnnl_engine_get_kind);
constinit next_function next_engine_destroy("dnnl_engine_destroy", dnnl_engine_destroy);
constinit next_function next_stream_create("dnnl_stream_create", dnnl_stream_create);
constinit next_function next_stream_get_engine("dnnl_stream_get_engine", dnnl_stream_get_engine);
constinit next_function next_stream_wait("dnnl_stream_wait", dnnl_stream_wait);
constinit next_function next_stream_destroy("dnnl_stream_destroy", dnnl_stream_destroy);
constinit next_function next_get_fpmath(
    "dnnl_get_default_fpmath_mode", dnnl_get_default_fpmath_mode);
constinit next_function next_set_fpmath(
    "dnnl_set_default_fpmath_mode", dnnl_set_default_fpmath_mode);
constinit next_function next_set_verbose("dnnl_set_verbose", dnnl_set_verbose);
constinit next_function next_version("dnnl_version", dnnl_version);

/// Removes a handle of ours from its set; false if it is not one.
template <typename Set>
bool forget(Set &set, const void *handle) {
    const std::unique_lock writing(handle_table::get().lock);
    return set.erase(handle) != 0;
}

}  // namespace

namespace convgrad::onednn {

std::optional<engine_kind_value> kind_of(client_engine *engine) {
    engine_kind_value kind{};
    if (dnnl_engine_get_kind(engine, &kind) != status::success) return std::nullopt;
    return kind;
}

client_engine *engine_of(const client_stream *stream) {
    client_engine *engine = nullptr;
    if (dnnl_stream_get_engine(stream, &engine) != status::success) return nullptr;
    return engine;
}

status wait_for(client_stream *stream) {
    return dnnl_stream_wait(stream);
}

allocator allocator_of(const client_engine *engine) {
    handle_table &table = handle_table::get();
    const std::shared_lock reading(table.lock);
    const auto found = table.allocators.find(engine);
    return found == table.allocators.end() ? allocator{} : found->second;
}

fpmath_mode default_fpmath_mode() {
    fpmath_mode mode = fpmath_mode::strict;
    dnnl_get_default_fpmath_mode(&mode);
    return mode;
}

const engine &engine_for(fpmath_mode mode) {
    // Made when first asked for, and never destroyed, as default_engine().
    switch (math_for(mode)) {
    case math_mode::strict: {
        static const auto *strict = new engine(make_engine(math_mode::strict));
        return *strict;
    }
    case math_mode::accurate: {
        static const auto *accurate = new engine(make_engine(math_mode::accurate));
        return *accurate;
    }
    case math_mode::fast:
        break;
    }
    static const auto *fast = new engine(make_engine(math_mode::fast));
    return *fast;
}

void client_memory::allocate(const allocator &from, std::size_t bytes) {
    from_ = from;
    constexpr std::size_t alignment = 64;
    if (!from.is_default()) {
        data_ = from.allocate(bytes, alignment);
        return;
    }
    if (bytes > SIZE_MAX - alignment) return;
    const std::size_t blocks = (bytes + alignment - 1) / alignment;
    data_ = std::aligned_alloc(alignment, std::max(blocks, std::size_t{1}) * alignment);
}

void client_memory::release() {
    void *data = data_;
    data_ = nullptr;
    if (data == nullptr) return;
    if (from_.is_default())
        std::free(data);
    else
        from_.deallocate(data);
}

client_memory::~client_memory() {
    try {
        release();
    } catch (...) {  // on the way out of another exception, or of no interest any more
        trace_error("allocator", "the client's deallocation threw");
    }
}

}  // namespace convgrad::onednn

CONVGRAD_ONEDNN_API std::size_t dnnl_engine_get_count(engine_kind_value kind) {
    if (auto *next = next_engine_get_count.get()) return next(kind);
    return kind == engine_kind_value::cpu ? 1 : 0;
}

CONVGRAD_ONEDNN_API status dnnl_engine_create(
    client_engine **engine, engine_kind_value kind, std::size_t index) {
    if (auto *next = next_engine_create.get()) {
        const status made = next(engine, kind, index);
        // A new engine may have the address of one that oneDNN destroyed unseen.
        if (made == status::success)
            return guarded("engine_create", [&] {
                forget(handle_table::get().allocators, *engine);
                return made;
            });
        return made;
    }
    if (engine == nullptr || kind != engine_kind_value::cpu || index != 0)
        return status::invalid_arguments;
    return guarded("engine_create", [&] {
        auto made = std::make_unique<client_engine>(client_engine{kind});
        handle_table &table = handle_table::get();
        const std::unique_lock writing(table.lock);
        table.engines.insert(made.get());
        *engine = made.release();
        return status::success;
    });
}

CONVGRAD_ONEDNN_API status dnnl_engine_get_kind(client_engine *engine, engine_kind_value *kind) {
    if (any_null(engine, kind)) return status::invalid_arguments;
    handle_table &table = handle_table::get();
    if (table.has(table.engines, engine)) {
        *kind = engine->kind;
        return status::success;
    }
    auto *next = next_engine_get_kind.get();
    return next != nullptr ? next(engine, kind) : status::invalid_arguments;
}

CONVGRAD_ONEDNN_API status dnnl_engine_destroy(client_engine *engine) {
    if (engine == nullptr) return status::success;
    handle_table &table = handle_table::get();
    forget(table.allocators, engine);
    if (forget(table.engines, engine)) {
        delete engine;
        return status::success;
    }
    auto *next = next_engine_destroy.get();
    return next != nullptr ? next(engine) : status::invalid_arguments;
}

CONVGRAD_ONEDNN_API status dnnl_stream_create(
    client_stream **stream, client_engine *engine, unsigned flags) {
    if (any_null(stream, engine)) return status::invalid_arguments;
    handle_table &table = handle_table::get();
    if (!table.has(table.engines, engine)) {
        auto *next = next_stream_create.get();
        return next != nullptr ? next(stream, engine, flags) : status::invalid_arguments;
    }
    if (flags != stream_in_order && flags != stream_out_of_order) return status::invalid_arguments;
    return guarded("stream_create", [&] {
        auto made = std::make_unique<client_stream>(client_stream{engine});
        const std::unique_lock writing(table.lock);
        table.streams.insert(made.get());
        *stream = made.release();
        return status::success;
    });
}

CONVGRAD_ONEDNN_API status dnnl_stream_get_engine(
    const client_stream *stream, client_engine **engine) {
    if (any_null(stream, engine)) return status::invalid_arguments;
    handle_table &table = handle_table::get();
    if (table.has(table.streams, stream)) {
        *engine = stream->engine;
        return status::success;
    }
    auto *next = next_stream_get_engine.get();
    return next != nullptr ? next(stream, engine) : status::invalid_arguments;
}

CONVGRAD_ONEDNN_API status dnnl_stream_wait(client_stream *stream) {
    if (stream == nullptr) return status::invalid_arguments;
    handle_table &table = handle_table::get();
    if (table.has(table.streams, stream)) return status::success;  // work ends with its call
    auto *next = next_stream_wait.get();
    return next != nullptr ? next(stream) : status::invalid_arguments;
}

CONVGRAD_ONEDNN_API status dnnl_stream_destroy(client_stream *stream) {
    if (stream == nullptr) return status::success;
    if (forget(handle_table::get().streams, stream)) {
        delete stream;
        return status::success;
    }
    auto *next = next_stream_destroy.get();
    return next != nullptr ? next(stream) : status::invalid_arguments;
}

CONVGRAD_ONEDNN_API status dnnl_get_default_fpmath_mode(fpmath_mode *mode) {
    if (mode == nullptr) return status::invalid_arguments;
    if (auto *next = next_get_fpmath.get()) return next(mode);
    *mode = own_fpmath_mode.load();
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_set_default_fpmath_mode(fpmath_mode mode) {
    if (auto *next = next_set_fpmath.get()) return next(mode);
    if (!is_mode(mode)) return status::invalid_arguments;
    own_fpmath_mode = mode;
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_set_verbose(int level) {
    if (auto *next = next_set_verbose.get()) return next(level);
    return level >= 0 && level <= 2 ? status::success : status::invalid_arguments;
}

CONVGRAD_ONEDNN_API const version_info *dnnl_version() {
    if (auto *next = next_version.get()) return next();
    constexpr unsigned threads_of_its_own = 8;  // the nearest of oneDNN's kinds: a thread pool
    static constexpr version_info own = {3, 14, 0, "convgrad", threads_of_its_own, 0};
    return &own;
}

CONVGRAD_ONEDNN_API status dnnl_graph_allocator_create(
    allocator **made, host_allocate allocate, host_deallocate deallocate) {
    if (made == nullptr) return status::invalid_arguments;
    const bool both = allocate != nullptr && deallocate != nullptr;
    const allocator wanted = both ? allocator{allocate, deallocate} : allocator{};
    if (const library *next = behind())
        return create_and_note(
            "allocator_create", made,
            [&](allocator **theirs) {
                return next->allocator_create(theirs, allocate, deallocate);
            },
            next->allocator_destroy, [&] { return std::make_shared<allocator>(wanted); });
    return guarded("allocator_create", [&] {
        *made = new allocator(wanted);
        return status::success;
    });
}

CONVGRAD_ONEDNN_API status dnnl_graph_allocator_destroy(allocator *given) {
    if (given == nullptr) return status::invalid_arguments;
    if (const library *next = behind()) {
        notes<allocator>::get().drop(given);
        return next->allocator_destroy(given);
    }
    delete given;
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_make_engine_with_allocator(
    client_engine **engine, engine_kind_value kind, std::size_t index, const allocator *given) {
    if (any_null(engine, given)) return status::invalid_arguments;
    const library *next = behind();
    client_engine *made = nullptr;
    const status said = next != nullptr
                            ? next->make_engine_with_allocator(&made, kind, index, given)
                            : dnnl_engine_create(&made, kind, index);
    if (said != status::success) return said;
    const status kept = guarded("make_engine_with_allocator", [&] {
        const auto noted = next != nullptr ? notes<allocator>::get().find(given) : nullptr;
        handle_table &table = handle_table::get();
        const std::unique_lock writing(table.lock);
        if (next == nullptr)
            table.allocators[made] = *given;
        else if (noted != nullptr)
            table.allocators[made] = *noted;
        else  // of a kind that this library cannot allocate with
            table.allocators.erase(made);
        return status::success;
    });
    if (kept == status::success)
        *engine = made;
    else
        dnnl_engine_destroy(made);
    return kept;
}
