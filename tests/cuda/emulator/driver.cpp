// A driver of GPUs that has two devices, on the host: libcuda.so.1 for tests where there is no
// other. Their memory is the host's, their streams do their work at once, and of the device code it
// takes names only: kernels are those that this library was compiled with. What belongs to one
// device is refused where the other's is current.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <vector>

#include <cuda.h>

#include "block.hpp"

namespace {

using namespace convgrad;

/// Of both devices, as "90"; no products of warpgroups can be emulated.
int capability() {
    const char *const asked = std::getenv("CONVGRAD_EMULATED_CAPABILITY");
    return asked == nullptr ? 80 : std::atoi(asked);
}
/// Bytes of shared memory that a block may ask for.
int most_shared() {
    constexpr int kilobyte = 1024;
    switch (capability()) {
    case 80:
    case 87:
        return 163 * kilobyte;
    case 86:
    case 89:
    case 120:
        return 99 * kilobyte;
    default:
        return 227 * kilobyte;
    }
}

std::mutex guard;  // one launch at a time

/// A device, which is its primary context and its pool of memory too.
struct device {
    int ordinal, multiprocessors;
    // What launches answer, and what everything does that waits or asks.
    std::atomic<CUresult> of_launches{CUDA_SUCCESS}, of_all{CUDA_SUCCESS};
};
device devices[] = {{0, 4}, {1, 1}};
constexpr int device_count = static_cast<int>(std::size(devices));

device *device_of(CUcontext context) {
    return reinterpret_cast<device *>(context);
}
CUcontext context_of(const device *of) {
    return reinterpret_cast<CUcontext>(const_cast<device *>(of));
}

/// Contexts that are current to this thread, the last one pushed at the end.
std::vector<CUcontext> &contexts() {
    thread_local std::vector<CUcontext> pushed;
    return pushed;
}
/// Null: none is.
device *current() {
    return contexts().empty() ? nullptr : device_of(contexts().back());
}

/// Of a stream, whose handle is that of its device; the default streams are the current one's.
device *device_of(CUstream stream) {
    const bool is_default =
        stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
    return is_default ? current() : *reinterpret_cast<device **>(stream);
}

enum class memory_kind { device, managed, pinned };
struct area {
    std::size_t bytes;
    const device *of;
    memory_kind kind;
};
std::map<CUdeviceptr, area> &areas() {
    static std::map<CUdeviceptr, area> known;
    return known;
}

struct function {
    const char *name;
    emulator::entry call;
    const device *of;
    unsigned most_shared = 48U * 1024;  // more has to be asked for
};

CUresult allocate(
    CUdeviceptr *to, std::size_t bytes, const device *of, memory_kind kind = memory_kind::device) {
    if (of == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    void *const memory = std::aligned_alloc(256, (bytes + 511) / 256 * 256);
    if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    *to = reinterpret_cast<CUdeviceptr>(memory);
    const std::lock_guard lock(guard);
    areas()[*to] = {bytes, of, kind};
    return CUDA_SUCCESS;
}
CUresult release(CUdeviceptr at) {
    const std::lock_guard lock(guard);
    areas().erase(at);
    std::free(reinterpret_cast<void *>(at));
    return CUDA_SUCCESS;
}
/// What memory it is; of no device: the host's.
area area_of(CUdeviceptr at) {
    const std::lock_guard lock(guard);
    auto next = areas().upper_bound(at);
    if (next == areas().begin()) return {};
    --next;
    return at < next->first + next->second.bytes + 1 ? next->second : area{};
}

}  // namespace

extern "C" {

/// Not of a driver: what a device answers from now on, to launches alone or to all.
void convgrad_emulator_answer(int ordinal, CUresult of_launches, CUresult of_all) {
    devices[ordinal].of_launches = of_launches;
    devices[ordinal].of_all = of_all;
}

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
    *count = device_count;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice *to, int ordinal) {
    if (ordinal < 0 || ordinal >= device_count) return CUDA_ERROR_INVALID_DEVICE;
    *to = ordinal;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char *name, int room, CUdevice) {
    std::snprintf(name, static_cast<std::size_t>(room), "emulator");
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice of) {
    *value = which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? capability() / 10
             : which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? capability() % 10
             : which == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT     ? devices[of].multiprocessors
                                                                     : 0;
    return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem_v2(std::size_t *bytes, CUdevice) {
    *bytes = std::size_t{1} << 30;
    return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice of) {
    *context = context_of(&devices[of]);
    return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent_v2(CUcontext context) {
    contexts().push_back(context);
    return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    if (contexts().empty()) return CUDA_ERROR_INVALID_CONTEXT;
    *context = contexts().back();
    contexts().pop_back();
    return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext *context) {
    *context = context_of(current());
    return CUDA_SUCCESS;
}
CUresult cuModuleLoadData(CUmodule *module, const void *) {
    *module = reinterpret_cast<CUmodule>(current());
    return current() == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction *to, CUmodule module, const char *name) {
    *to = reinterpret_cast<CUfunction>(
        new function{name, emulator::find_kernel(name), reinterpret_cast<const device *>(module)});
    return CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute, CUfunction) {
    *value = 0;
    return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction which, CUfunction_attribute what, int value) {
    if (what == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
        if (value > most_shared()) return CUDA_ERROR_INVALID_VALUE;
        reinterpret_cast<function *>(which)->most_shared = static_cast<unsigned>(value);
    }
    return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction which, unsigned grid_x, unsigned, unsigned, unsigned block_x,
    unsigned, unsigned, unsigned shared, CUstream stream, void **arguments, void **) {
    const auto *const f = reinterpret_cast<const function *>(which);
    if (current() == nullptr || device_of(stream) != current()) return CUDA_ERROR_INVALID_CONTEXT;
    if (f->of != current()) return CUDA_ERROR_INVALID_HANDLE;
    if (current()->of_all != CUDA_SUCCESS) return current()->of_all;
    if (current()->of_launches != CUDA_SUCCESS) return current()->of_launches;
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
    const area there = area_of(at);
    const bool ours = there.of != nullptr;
    for (unsigned i = 0; i < count; ++i)
        if (which[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
            *static_cast<CUmemorytype *>(values[i]) = !ours ? static_cast<CUmemorytype>(0)
                                                      : there.kind == memory_kind::pinned
                                                          ? CU_MEMORYTYPE_HOST
                                                          : CU_MEMORYTYPE_DEVICE;
        else if (which[i] == CU_POINTER_ATTRIBUTE_IS_MANAGED)
            *static_cast<unsigned *>(values[i]) = ours && there.kind == memory_kind::managed;
        else if (which[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
            *static_cast<int *>(values[i]) = ours ? there.of->ordinal : -2;
    return CUDA_SUCCESS;
}
CUresult cuStreamCreate(CUstream *stream, unsigned) {
    if (current() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    *stream = reinterpret_cast<CUstream>(new device *(current()));
    return CUDA_SUCCESS;
}
CUresult cuStreamDestroy_v2(CUstream stream) {
    delete reinterpret_cast<device **>(stream);
    return CUDA_SUCCESS;
}
CUresult cuStreamGetCtx(CUstream stream, CUcontext *context) {
    *context = context_of(device_of(stream));
    return CUDA_SUCCESS;
}
CUresult cuStreamSynchronize(CUstream stream) {
    return device_of(stream)->of_all;
}
CUresult cuStreamQuery(CUstream stream) {
    return device_of(stream)->of_all;
}
CUresult cuStreamIsCapturing(CUstream, CUstreamCaptureStatus *status) {
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *) {
    return CUDA_SUCCESS;
}
CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *wanted) {
    *pool = reinterpret_cast<CUmemoryPool>(&devices[wanted->location.id]);
    return CUDA_SUCCESS;
}
CUresult cuMemPoolSetAttribute(CUmemoryPool, CUmemPool_attribute, void *) {
    return CUDA_SUCCESS;
}
CUresult cuMemPoolTrimTo(CUmemoryPool, std::size_t) {
    return CUDA_SUCCESS;
}
CUresult cuMemAllocFromPoolAsync(
    CUdeviceptr *to, std::size_t bytes, CUmemoryPool pool, CUstream stream) {
    const auto *const of = reinterpret_cast<const device *>(pool);
    return device_of(stream) == of ? allocate(to, bytes, of) : CUDA_ERROR_INVALID_CONTEXT;
}
CUresult cuMemFreeAsync(CUdeviceptr at, CUstream) {
    return release(at);
}
CUresult cuMemAlloc_v2(CUdeviceptr *to, std::size_t bytes) {
    return allocate(to, bytes, current());
}
CUresult cuMemAllocManaged(CUdeviceptr *to, std::size_t bytes, unsigned) {
    return allocate(to, bytes, current(), memory_kind::managed);
}
CUresult cuMemAllocHost_v2(void **to, std::size_t bytes) {
    return allocate(reinterpret_cast<CUdeviceptr *>(to), bytes, current(), memory_kind::pinned);
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
