// The CUDA driver, found at run time: no program is linked with it, and none of NVIDIA's runtime
// libraries is needed.
#pragma once

#include <string>

#include <cuda.h>

namespace convgrad::cuda {

/// The functions of the driver that the engine calls, by their names there.
struct driver {
#define CONVGRAD_DRIVER_FUNCTIONS(X)                                                               \
    X(cuInit)                                                                                      \
    X(cuDriverGetVersion)                                                                          \
    X(cuGetErrorName)                                                                              \
    X(cuGetErrorString)                                                                            \
    X(cuDeviceGetCount)                                                                            \
    X(cuDeviceGet)                                                                                 \
    X(cuDeviceGetName)                                                                             \
    X(cuDeviceGetAttribute)                                                                        \
    X(cuDeviceTotalMem)                                                                            \
    X(cuDevicePrimaryCtxRetain)                                                                    \
    X(cuCtxPushCurrent)                                                                            \
    X(cuCtxPopCurrent)                                                                             \
    X(cuModuleLoadData)                                                                            \
    X(cuModuleGetFunction)                                                                         \
    X(cuFuncGetAttribute)                                                                          \
    X(cuFuncSetAttribute)                                                                          \
    X(cuLaunchKernel)                                                                              \
    X(cuPointerGetAttributes)                                                                      \
    X(cuStreamCreate)                                                                              \
    X(cuStreamDestroy)                                                                             \
    X(cuStreamGetCtx)                                                                              \
    X(cuStreamSynchronize)                                                                         \
    X(cuStreamQuery)                                                                               \
    X(cuStreamIsCapturing)                                                                         \
    X(cuThreadExchangeStreamCaptureMode)                                                           \
    X(cuMemPoolCreate)                                                                             \
    X(cuMemPoolSetAttribute)                                                                       \
    X(cuMemPoolTrimTo)                                                                             \
    X(cuMemAllocFromPoolAsync)                                                                     \
    X(cuMemFreeAsync)                                                                              \
    X(cuMemAlloc)                                                                                  \
    X(cuMemFree)                                                                                   \
    X(cuMemcpyHtoD)                                                                                \
    X(cuMemcpyDtoH)                                                                                \
    X(cuMemcpyDtoDAsync)                                                                           \
    X(cuEventCreate)                                                                               \
    X(cuEventDestroy)                                                                              \
    X(cuEventRecord)                                                                               \
    X(cuEventSynchronize)                                                                          \
    X(cuEventElapsedTime)                                                                          \
    X(cuTensorMapEncodeIm2col)                                                                     \
    X(cuTensorMapEncodeTiled)
#define CONVGRAD_DECLARE(name) decltype(&::name) name = nullptr;
    CONVGRAD_DRIVER_FUNCTIONS(CONVGRAD_DECLARE)
#undef CONVGRAD_DECLARE

    /// "CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered)".
    [[nodiscard]] std::string words(CUresult code) const;
};

/// The driver of this machine, initialised. Throws unsupported, with the cause, where there is
/// none.
const driver &the_driver();

/// Whether a device that answers so is lost to this process.
bool is_lasting(CUresult code);

}  // namespace convgrad::cuda
