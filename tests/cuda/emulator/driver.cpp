// A driver of GPUs that has one device, on the host: libcuda.so.1 for tests where there is no
// other. Its memory is the host's, its streams do their work at once, and of the device code it
// takes names only: kernels are those that this library was compiled with.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include <cuda.h>

#include "block.hpp"

namespace {

using namespace convgrad;

std::mutex guard;  // one launch at a time
std::map<CUdeviceptr, std::size_t> &areas() {
    static std::map<CUdeviceptr, std::size_t> known;
    return known;
}

struct function {
    const char *name;
    emulator::entry call;
    unsigned most_shared = 48U * 1024;  // more has to be asked for
};

CUresult allocate(CUdeviceptr *to, std::size_t bytes) {
    void *const memory = std::aligned_alloc(256, (bytes + 511) / 256 * 256);
    if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    *to = reinterpret_cast<CUdeviceptr>(memory);
    const std::lock_guard lock(guard);
    areas()[*to] = bytes;
    return CUDA_SUCCESS;
}
CUresult release(CUdeviceptr at) {
    const std::lock_guard lock(guard);
    areas().erase(at);
    std::free(reinterpret_cast<void *>(at));
    return CUDA_SUCCESS;
}
bool is_ours(CUdeviceptr at) {
    const std::lock_guard lock(guard);
    auto next = areas().upper_bound(at);
    if (next == areas().begin()) return false;
    --next;
    return at < next->first + next->second + 1;
}

}  // namespace

extern "C" {

CUresult cuInit(unsigned) {
    return CUDA_SUCCESS;
}
CUresult cuDriverGetVersion(int *version) {
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult code, const char **name) {
    *name = code == CUDA_SUCCESS ? "CUDA_SUCCESS" : "an error of the emulator";
    return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult, const char **text) {
    *text = nullptr;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int *count) {
    *count = 1;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice *device, int) {
    *device = 0;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char *name, int room, CUdevice) {
    std::snprintf(name, static_cast<std::size_t>(room), "emulator");
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice) {
    // The compute capability, as "90"; no products of warpgroups can be emulated.
    const char *const asked = std::getenv("CONVGRAD_EMULATED_CAPABILITY");
    const int capability = asked == nullptr ? 80 : std::atoi(asked);
    *value = which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? capability / 10
             : which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? capability % 10
             : which == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT     ? 4
                                                                     : 0;
    return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem_v2(std::size_t *bytes, CUdevice) {
    *bytes = std::size_t{1} << 30;
    return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice) {
    *context = nullptr;
    return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent_v2(CUcontext) {
    return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent_v2(CUcontext *) {
    return CUDA_SUCCESS;
}
CUresult cuModuleLoadData(CUmodule *module, const void *) {
    *module = nullptr;
    return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction *to, CUmodule, const char *name) {
    *to = reinterpret_cast<CUfunction>(new function{name, emulator::find_kernel(name)});
    return CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute, CUfunction) {
    *value = 0;
    return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction which, CUfunction_attribute what, int value) {
    if (what == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
        reinterpret_cast<function *>(which)->most_shared = static_cast<unsigned>(value);
    return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction which, unsigned grid_x, unsigned, unsigned, unsigned block_x,
    unsigned, unsigned, unsigned shared, CUstream, void **arguments, void **) {
    const auto *const f = reinterpret_cast<const function *>(which);
    if (f->call == nullptr) {
        std::fprintf(stderr, "emulator: there is no kernel %s\n", f->name);
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (shared > f->most_shared) return CUDA_ERROR_INVALID_VALUE;
    const std::lock_guard lock(guard);
    emulator::run({grid_x, 1, 1}, {block_x, 1, 1}, shared, [&] { f->call(arguments); });
    return CUDA_SUCCESS;
}
CUresult cuPointerGetAttributes(
    unsigned count, CUpointer_attribute *which, void **values, CUdeviceptr at) {
    const bool ours = is_ours(at);
    for (unsigned i = 0; i < count; ++i)
        if (which[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
            *static_cast<CUmemorytype *>(values[i]) =
                ours ? CU_MEMORYTYPE_DEVICE : static_cast<CUmemorytype>(0);
        else if (which[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
            *static_cast<int *>(values[i]) = ours ? 0 : -2;
    return CUDA_SUCCESS;
}
CUresult cuStreamCreate(CUstream *stream, unsigned) {
    *stream = nullptr;
    return CUDA_SUCCESS;
}
CUresult cuStreamDestroy_v2(CUstream) {
    return CUDA_SUCCESS;
}
CUresult cuStreamGetCtx(CUstream, CUcontext *context) {
    *context = nullptr;
    return CUDA_SUCCESS;
}
CUresult cuStreamSynchronize(CUstream) {
    return CUDA_SUCCESS;
}
CUresult cuStreamQuery(CUstream) {
    return CUDA_SUCCESS;
}
CUresult cuStreamIsCapturing(CUstream, CUstreamCaptureStatus *status) {
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *) {
    return CUDA_SUCCESS;
}
CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *) {
    *pool = nullptr;
    return CUDA_SUCCESS;
}
CUresult cuMemPoolSetAttribute(CUmemoryPool, CUmemPool_attribute, void *) {
    return CUDA_SUCCESS;
}
CUresult cuMemPoolTrimTo(CUmemoryPool, std::size_t) {
    return CUDA_SUCCESS;
}
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *to, std::size_t bytes, CUmemoryPool, CUstream) {
    return allocate(to, bytes);
}
CUresult cuMemFreeAsync(CUdeviceptr at, CUstream) {
    return release(at);
}
CUresult cuMemAlloc_v2(CUdeviceptr *to, std::size_t bytes) {
    return allocate(to, bytes);
}
CUresult cuMemAllocManaged(CUdeviceptr *to, std::size_t bytes, unsigned) {
    return allocate(to, bytes);
}
CUresult cuMemAllocHost_v2(void **to, std::size_t bytes) {
    *to = std::malloc(bytes);
    return *to == nullptr ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}
CUresult cuMemFree_v2(CUdeviceptr at) {
    return release(at);
}
CUresult cuMemGetInfo_v2(std::size_t *free_bytes, std::size_t *all) {
    *free_bytes = *all = std::size_t{1} << 30;
    return CUDA_SUCCESS;
}
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, std::size_t bytes) {
    std::memcpy(reinterpret_cast<void *>(to), from, bytes);
    return CUDA_SUCCESS;
}
CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, std::size_t bytes) {
    std::memcpy(to, reinterpret_cast<const void *>(from), bytes);
    return CUDA_SUCCESS;
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream) {
    std::memcpy(reinterpret_cast<void *>(to), reinterpret_cast<const void *>(from), bytes);
    return CUDA_SUCCESS;
}
CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char with, std::size_t bytes) {
    std::memset(reinterpret_cast<void *>(to), with, bytes);
    return CUDA_SUCCESS;
}
CUresult cuEventCreate(CUevent *event, unsigned) {
    *event = nullptr;
    return CUDA_SUCCESS;
}
CUresult cuEventDestroy_v2(CUevent) {
    return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent, CUstream) {
    return CUDA_SUCCESS;
}
CUresult cuEventSynchronize(CUevent) {
    return CUDA_SUCCESS;
}
CUresult cuEventElapsedTime(float *ms, CUevent, CUevent) {
    *ms = 1;
    return CUDA_SUCCESS;
}
// Maps are empty: the kernels that would read them are not here, which whoever launches one is
// told.
CUresult cuTensorMapEncodeIm2col(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
    const cuuint64_t *, const cuuint64_t *, const int *, const int *, cuuint32_t, cuuint32_t,
    const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
    CUtensorMapFloatOOBfill) {
    return CUDA_SUCCESS;
}
CUresult cuTensorMapEncodeTiled(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
    const cuuint64_t *, const cuuint64_t *, const cuuint32_t *, const cuuint32_t *,
    CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
    return CUDA_SUCCESS;
}
// Captures: there are none.
CUresult cuStreamBeginCapture_v2(CUstream, CUstreamCaptureMode) {
    return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuStreamEndCapture(CUstream, CUgraph *) {
    return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec *, CUgraph, unsigned long long) {
    return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuGraphLaunch(CUgraphExec, CUstream) {
    return CUDA_ERROR_NOT_SUPPORTED;
}

}  // extern "C"
