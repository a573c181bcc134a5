// NVIDIA's cuDNN 9, where it is installed and asked for: opened at run time, through its graph
// interface alone. Nothing of it is needed to build.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <cuda.h>

namespace convgrad::cuda {

// Names and numbers of cuDNN 9 that are used, as its headers have them.
using cudnn_handle = struct cudnn_context *;
using cudnn_descriptor = void *;
enum class cudnn_status : int { success = 0, bad_parameter = 2000 };
enum class cudnn_kind : int {
    convolution = 1,
    engine = 2,
    engine_configuration = 3,
    heuristics = 4,
    execution_plan = 5,
    operation_forward = 10,
    operation_backward_weights = 11,
    operation_backward_data = 12,
    operation_graph = 15,
    variant_pack = 16,
    tensor = 17,
};
/// Types of attributes' values.
enum class cudnn_type : int {
    handle = 0,
    data_type = 1,
    int64 = 3,
    f32 = 4,
    pointer = 6,
    convolution_mode = 7,
    heuristics_mode = 8,
    numerical_note = 11,
    descriptor = 15,
};
enum class cudnn_attribute : int {
    convolution_sums = 100,
    convolution_mode = 101,
    convolution_dilations = 102,
    convolution_strides = 103,
    convolution_pads_end = 104,
    convolution_pads_begin = 105,
    convolution_axes = 106,
    heuristics_mode = 200,
    heuristics_graph = 201,
    heuristics_results = 202,
    configuration_engine = 300,
    plan_handle = 400,
    plan_configuration = 401,
    plan_workspace = 402,
    // Of the three operations, those of each pass six numbers on: see operation_form.
    operation_alpha = 700,
    operation_beta = 701,
    operation_convolution = 702,
    operation_weights = 703,
    operation_src = 704,
    operation_dst = 705,
    graph_handle = 800,
    graph_operations = 801,
    tensor_alignment = 900,
    tensor_type = 901,
    tensor_lengths = 902,
    tensor_strides = 903,
    tensor_id = 906,
    pack_ids = 1000,
    pack_pointers = 1001,
    pack_workspace = 1003,
    engine_number = 1301,
    engine_numerical_notes = 1303,
};
enum class cudnn_element : int { f32 = 0, f16 = 2, bf16 = 9 };
enum class cudnn_note : int {
    tensor_core = 0,
    down_converts = 1,
    reduces_precision = 2,
    fft = 3,
    not_deterministic = 4,
    winograd = 5,
    winograd_4x4 = 6,
    winograd_6x6 = 7,
    winograd_13x13 = 8,
    count = 10,
};
constexpr int cudnn_cross_correlation = 1;
constexpr int cudnn_heuristics_a = 3;  // engines by the time that cuDNN expects

/// Its functions, by their names there.
struct cudnn_library {
    cudnn_status (*cudnnCreate)(cudnn_handle *) = nullptr;
    cudnn_status (*cudnnSetStream)(cudnn_handle, CUstream) = nullptr;
    std::size_t (*cudnnGetVersion)() = nullptr;
    const char *(*cudnnGetErrorString)(cudnn_status) = nullptr;
    cudnn_status (*cudnnBackendCreateDescriptor)(cudnn_kind, cudnn_descriptor *) = nullptr;
    cudnn_status (*cudnnBackendDestroyDescriptor)(cudnn_descriptor) = nullptr;
    cudnn_status (*cudnnBackendFinalize)(cudnn_descriptor) = nullptr;
    cudnn_status (*cudnnBackendSetAttribute)(cudnn_descriptor, cudnn_attribute, cudnn_type,
        std::int64_t count, const void *values) = nullptr;
    cudnn_status (*cudnnBackendGetAttribute)(cudnn_descriptor, cudnn_attribute, cudnn_type,
        std::int64_t room, std::int64_t *count, void *values) = nullptr;
    cudnn_status (*cudnnBackendExecute)(
        cudnn_handle, cudnn_descriptor plan, cudnn_descriptor pack) = nullptr;
};

/// The library of this machine. Throws unsupported, with the cause, where there is none.
const cudnn_library &the_cudnn();

}  // namespace convgrad::cuda
