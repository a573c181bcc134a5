// Compares python/src/xla_abi.hpp, line by line, with the header that JAX brings. Compiling is the
// test.
#include <type_traits>

#include <xla/ffi/api/c_api.h>
#include <xla_abi.hpp>

namespace ours = convgrad::xla;

static_assert(ours::major_version == XLA_FFI_API_MAJOR);

#define SAME_VALUE(mine, theirs) static_assert(static_cast<int>(ours::mine) == (theirs))
SAME_VALUE(error_kind::invalid_argument, XLA_FFI_Error_Code_INVALID_ARGUMENT);
SAME_VALUE(error_kind::resource_exhausted, XLA_FFI_Error_Code_RESOURCE_EXHAUSTED);
SAME_VALUE(error_kind::unimplemented, XLA_FFI_Error_Code_UNIMPLEMENTED);
SAME_VALUE(error_kind::internal, XLA_FFI_Error_Code_INTERNAL);
SAME_VALUE(element_type::s64, XLA_FFI_DataType_S64);
SAME_VALUE(element_type::f16, XLA_FFI_DataType_F16);
SAME_VALUE(element_type::f32, XLA_FFI_DataType_F32);
SAME_VALUE(element_type::bf16, XLA_FFI_DataType_BF16);
SAME_VALUE(attribute_type::array, XLA_FFI_AttrType_ARRAY);
SAME_VALUE(attribute_type::scalar, XLA_FFI_AttrType_SCALAR);
SAME_VALUE(attribute_type::string, XLA_FFI_AttrType_STRING);
SAME_VALUE(extension::metadata, XLA_FFI_Extension_Metadata);
static_assert(sizeof(ours::element_type) == sizeof(XLA_FFI_DataType));
static_assert(sizeof(ours::attribute_type) == sizeof(XLA_FFI_AttrType));
static_assert(sizeof(ours::error_kind) == sizeof(XLA_FFI_Error_Code));
static_assert(sizeof(ours::extension::type) == sizeof(XLA_FFI_Extension_Type));

#define SAME_PLACE(mine, field, theirs, their_field)                                               \
    static_assert(offsetof(ours::mine, field) == offsetof(theirs, their_field)                     \
                  && sizeof(ours::mine::field) == sizeof(theirs::their_field))
SAME_PLACE(extension, struct_size, XLA_FFI_Extension_Base, struct_size);
SAME_PLACE(extension, type, XLA_FFI_Extension_Base, type);
SAME_PLACE(extension, next, XLA_FFI_Extension_Base, next);
SAME_PLACE(version, major, XLA_FFI_Api_Version, major_version);
SAME_PLACE(version, minor, XLA_FFI_Api_Version, minor_version);
SAME_PLACE(handler_metadata, api_version, XLA_FFI_Metadata, api_version);
SAME_PLACE(handler_metadata, traits, XLA_FFI_Metadata, traits);
SAME_PLACE(metadata_extension, base, XLA_FFI_Metadata_Extension, extension_base);
SAME_PLACE(metadata_extension, metadata, XLA_FFI_Metadata_Extension, metadata);
SAME_PLACE(buffer, type, XLA_FFI_Buffer, dtype);
SAME_PLACE(buffer, data, XLA_FFI_Buffer, data);
SAME_PLACE(buffer, rank, XLA_FFI_Buffer, rank);
SAME_PLACE(buffer, dims, XLA_FFI_Buffer, dims);
SAME_PLACE(span, data, XLA_FFI_ByteSpan, ptr);
SAME_PLACE(span, size, XLA_FFI_ByteSpan, len);
SAME_PLACE(scalar, type, XLA_FFI_Scalar, dtype);
SAME_PLACE(scalar, value, XLA_FFI_Scalar, value);
SAME_PLACE(array, type, XLA_FFI_Array, dtype);
SAME_PLACE(array, size, XLA_FFI_Array, size);
SAME_PLACE(array, data, XLA_FFI_Array, data);
SAME_PLACE(value_list, size, XLA_FFI_Args, size);
SAME_PLACE(value_list, values, XLA_FFI_Args, args);
SAME_PLACE(value_list, size, XLA_FFI_Rets, size);
SAME_PLACE(value_list, values, XLA_FFI_Rets, rets);
static_assert(sizeof(ours::value_list) == sizeof(XLA_FFI_Args));
static_assert(sizeof(ours::value_list) == sizeof(XLA_FFI_Rets));
SAME_PLACE(attribute_list, size, XLA_FFI_Attrs, size);
SAME_PLACE(attribute_list, types, XLA_FFI_Attrs, types);
SAME_PLACE(attribute_list, names, XLA_FFI_Attrs, names);
SAME_PLACE(attribute_list, values, XLA_FFI_Attrs, attrs);
static_assert(sizeof(ours::attribute_list) == sizeof(XLA_FFI_Attrs));
SAME_PLACE(error_create_args, message, XLA_FFI_Error_Create_Args, message);
SAME_PLACE(error_create_args, kind, XLA_FFI_Error_Create_Args, errc);
SAME_PLACE(error_destroy_args, what, XLA_FFI_Error_Destroy_Args, error);
SAME_PLACE(schedule_args, context, XLA_FFI_ThreadPool_Schedule_Args, ctx);
SAME_PLACE(schedule_args, task, XLA_FFI_ThreadPool_Schedule_Args, task);
SAME_PLACE(schedule_args, data, XLA_FFI_ThreadPool_Schedule_Args, data);
SAME_PLACE(thread_count_args, context, XLA_FFI_ThreadPool_NumThreads_Args, ctx);
SAME_PLACE(thread_count_args, count, XLA_FFI_ThreadPool_NumThreads_Args, num_threads);
SAME_PLACE(api, api_version, XLA_FFI_Api, api_version);
SAME_PLACE(api, error_create, XLA_FFI_Api, XLA_FFI_Error_Create);
SAME_PLACE(api, error_destroy, XLA_FFI_Api, XLA_FFI_Error_Destroy);
SAME_PLACE(api, schedule, XLA_FFI_Api, XLA_FFI_ThreadPool_Schedule);
SAME_PLACE(api, thread_count, XLA_FFI_Api, XLA_FFI_ThreadPool_NumThreads);
SAME_PLACE(call_frame, extensions, XLA_FFI_CallFrame, extension_start);
SAME_PLACE(call_frame, api, XLA_FFI_CallFrame, api);
SAME_PLACE(call_frame, context, XLA_FFI_CallFrame, ctx);
SAME_PLACE(call_frame, stage, XLA_FFI_CallFrame, stage);
SAME_PLACE(call_frame, arguments, XLA_FFI_CallFrame, args);
SAME_PLACE(call_frame, results, XLA_FFI_CallFrame, rets);
SAME_PLACE(call_frame, attributes, XLA_FFI_CallFrame, attrs);
// A longer structure than ours would be refused by nobody; a shorter one by XLA.
static_assert(sizeof(ours::error_create_args) >= XLA_FFI_Error_Create_Args_STRUCT_SIZE);
static_assert(sizeof(ours::error_destroy_args) >= XLA_FFI_Error_Destroy_Args_STRUCT_SIZE);
static_assert(sizeof(ours::schedule_args) >= XLA_FFI_ThreadPool_Schedule_Args_STRUCT_SIZE);
static_assert(sizeof(ours::thread_count_args) >= XLA_FFI_ThreadPool_NumThreads_Args_STRUCT_SIZE);
