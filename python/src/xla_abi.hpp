// The binary interface of XLA's foreign function calls, as far as our handlers use it. Written down
// here so that the package needs no foreign header and one build serves many versions of JAX; the
// tests compare every line with the header that JAX brings.
//
// XLA adds fields at the end only and says in struct_size how many there are; all that is used here
// is there since version 0.1 but for ThreadPool_NumThreads, which is looked for.
#pragma once

#include <cstddef>
#include <cstdint>

namespace convgrad::xla {

inline constexpr int major_version = 0;
/// Versions up to this one have been compared with what is written here.
inline constexpr int newest_minor_version = 3;

enum class error_kind : int {
    invalid_argument = 3,
    resource_exhausted = 8,
    unimplemented = 12,
    internal = 13,
};

enum class element_type : int { s64 = 5, f16 = 10, f32 = 11, bf16 = 16 };

/// Types of an attribute.
enum class attribute_type : int { array = 1, scalar = 3, string = 4 };

struct error;              // XLA's own
struct execution_context;  // XLA's own

/// The head of every extension.
struct extension {
    static constexpr int metadata = 1;
    std::size_t struct_size;
    int type;
    extension *next;
};

struct version {
    std::size_t struct_size;
    extension *extensions;
    int major, minor;
};

struct handler_metadata {
    std::size_t struct_size;
    version api_version;
    std::uint32_t traits;
};

struct metadata_extension {
    extension base;
    handler_metadata *metadata;
};

struct buffer {
    std::size_t struct_size;
    extension *extensions;
    element_type type;
    void *data;
    std::int64_t rank;
    std::int64_t *dims;
};

struct span {
    const char *data;
    std::size_t size;
};

struct scalar {
    element_type type;
    void *value;
};

struct array {
    element_type type;
    std::size_t size;
    void *data;
};

/// Arguments, or results. There is one type only: buffer.
struct value_list {
    std::size_t struct_size;
    extension *extensions;
    std::int64_t size;
    int *types;
    void **values;
};

struct attribute_list {
    std::size_t struct_size;
    extension *extensions;
    std::int64_t size;
    attribute_type *types;
    span **names;
    void **values;
};

struct error_create_args {
    std::size_t struct_size;
    extension *extensions;
    const char *message;
    error_kind kind;
};

struct error_destroy_args {
    std::size_t struct_size;
    extension *extensions;
    error *what;
};

struct schedule_args {
    std::size_t struct_size;
    extension *extensions;
    execution_context *context;
    void (*task)(void *data);
    void *data;
};

struct thread_count_args {
    std::size_t struct_size;
    extension *extensions;
    execution_context *context;
    std::int64_t *count;  // out
};

/// XLA's functions. Those that are not used have no type.
struct api {
    std::size_t struct_size;
    extension *extensions;
    version api_version;
    const void *internal;
    error *(*error_create)(error_create_args *);
    void *error_get_message;
    void (*error_destroy)(error_destroy_args *);
    void *handler_register, *stream_get, *type_register, *context_get, *state_set, *state_get;
    void *memory_allocate, *memory_free;
    error *(*schedule)(schedule_args *);
    error *(*thread_count)(thread_count_args *);
};

struct call_frame {
    std::size_t struct_size;
    extension *extensions;
    const xla::api *api;
    execution_context *context;
    int stage;  // a handler that is registered as a plain function is called to execute only
    value_list arguments, results;
    attribute_list attributes;
};

using handler = error *(call_frame *);

/// Whether XLA's table has this function.
template <typename Member>
bool has(const api &of, Member api::*member) {
    const auto *end = reinterpret_cast<const char *>(&(of.*member) + 1);
    return static_cast<std::size_t>(end - reinterpret_cast<const char *>(&of)) <= of.struct_size
           && of.*member != nullptr;
}

/// An error of XLA, which XLA destroys.
inline error *make_error(const api &of, error_kind kind, const char *message) {
    error_create_args args{sizeof(error_create_args), nullptr, message, kind};
    return of.error_create(&args);
}

}  // namespace convgrad::xla
