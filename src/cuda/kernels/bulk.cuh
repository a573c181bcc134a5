// Hopper's copy engine: boxes of tensors come to shared memory by one instruction of one thread,
// and barriers in shared memory tell when. What lies beside a tensor is zero.
#pragma once

#include "tensor.cuh"

namespace convgrad::cuda::bulk {

/// A box of pixels by channels: where its first pixel is, and which tap it is read through.
struct box {
    int channel, x[3], image;  // x: slowest axis first, without the tap
    unsigned short offset[3];  // of the tap
};

__device__ inline void init(unsigned barrier, unsigned arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}
/// Makes barriers visible to the copy engine, before the next barrier of threads.
__device__ inline void publish_barriers() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ inline void arrive(unsigned barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/// Arrives, and keeps the barrier until so many bytes have come.
__device__ inline void expect(unsigned barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}
/// Until the phase of this parity has ended.
__device__ inline void wait(unsigned barrier, unsigned parity) {
    asm volatile("{\n.reg .pred done;\nagain:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra.uni ready;\nbra.uni again;\nready:\n}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

/// Copies pixels of two axes or three, as their order in the map has them.
__device__ inline void copy_pixels(
    unsigned to, const tensor_map &map, unsigned barrier, const box &b, bool three_axes) {
    const std::uint64_t at = reinterpret_cast<std::uint64_t>(&map);
    if (three_axes)
        asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.im2col"
                     ".mbarrier::complete_tx::bytes [%0], [%1, {%3,%4,%5,%6,%7}], [%2], "
                     "{%8,%9,%10};" ::"r"(to),
                     "l"(at), "r"(barrier), "r"(b.channel), "r"(b.x[2]), "r"(b.x[1]), "r"(b.x[0]),
                     "r"(b.image), "h"(b.offset[2]), "h"(b.offset[1]), "h"(b.offset[0])
                     : "memory");
    else
        asm volatile(
            "cp.async.bulk.tensor.4d.shared::cluster.global.im2col"
            ".mbarrier::complete_tx::bytes [%0], [%1, {%3,%4,%5,%6}], [%2], {%7,%8};" ::"r"(to),
            "l"(at), "r"(barrier), "r"(b.channel), "r"(b.x[2]), "r"(b.x[1]), "r"(b.image),
            "h"(b.offset[2]), "h"(b.offset[1])
            : "memory");
}
/// Whole rows of 64 channels of neighbouring images, from (y, x) on.
__device__ inline void copy_rows(
    unsigned to, const tensor_map &map, unsigned barrier, int channel, int x, int y, int image) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global"
                 ".mbarrier::complete_tx::bytes [%0], [%1, {%3,%4,%5,%6}], [%2];" ::"r"(to),
                 "l"(reinterpret_cast<std::uint64_t>(&map)), "r"(barrier), "r"(channel), "r"(x),
                 "r"(y), "r"(image)
                 : "memory");
}
/// A box of a tensor of three axes, from its corner on, the fastest first.
__device__ inline void copy_box(
    unsigned to, const tensor_map &map, unsigned barrier, int first, int second, int third) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global"
                 ".mbarrier::complete_tx::bytes [%0], [%1, {%3,%4,%5}], [%2];" ::"r"(to),
                 "l"(reinterpret_cast<std::uint64_t>(&map)), "r"(barrier), "r"(first), "r"(second),
                 "r"(third)
                 : "memory");
}

/// The other way, from shared memory that is swizzled and published; what lies beside the tensor is
/// not stored.
__device__ inline void store_box(
    const tensor_map &map, unsigned from, int first, int second, int third) {
    asm volatile(
        "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2,%3,%4}], [%1];" ::"l"(
            reinterpret_cast<std::uint64_t>(&map)),
        "r"(from), "r"(first), "r"(second), "r"(third)
        : "memory");
}
__device__ inline void commit_stores() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
/// Until no more than `Pending` groups of this thread's stores still read shared memory.
template <int Pending>
__device__ inline void await_reads() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}
/// Until all of them can be seen.
__device__ inline void await_stores() {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/// Gives registers up, or takes what others gave up: all threads of a warpgroup.
template <int Registers>
__device__ inline void shrink() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
__device__ inline void grow() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}

/// Until the 128 threads of warpgroup `which` are here.
__device__ inline void meet(int which) {
    asm volatile("bar.sync %0, 128;" ::"r"(which + 1) : "memory");
}
/// The same: whether one of them says so.
__device__ inline bool any(int which, bool mine) {
    int result;
    asm volatile("{\n.reg .pred p, q;\nsetp.ne.b32 p, %2, 0;\n"
                 "bar.red.or.pred q, %1, 128, p;\nselp.b32 %0, 1, 0, q;\n}"
                 : "=r"(result)
                 : "r"(which + 1), "r"(mine ? 1 : 0)
                 : "memory");
    return result != 0;
}
/// Two warpgroups in turns: `which` waits until the other one has passed the turn on.
__device__ inline void take_turn(int which) {
    asm volatile("bar.sync %0, 256;" ::"r"(which + 3) : "memory");
}
__device__ inline void pass_turn(int which) {
    asm volatile("bar.arrive %0, 256;" ::"r"((which ^ 1) + 3) : "memory");
}

/// A ring of stages between the threads that copy (one, or so many) and the warps that compute, of
/// which so many read each stage.
template <int Stages, int Readers = 8, int Writers = 1>
struct ring {
    unsigned memory, full, empty;  // addresses of the stages and of their barriers
    unsigned bytes;                // of a stage
    int stage = 0;
    unsigned parity = 0;

    static constexpr int barriers = 2 * Stages;
    __device__ ring(unsigned stages_at, unsigned barriers_at, unsigned stage_bytes)
        : memory(stages_at), full(barriers_at), empty(barriers_at + 8 * Stages),
          bytes(stage_bytes) {}
    __device__ void open() const {
        for (int i = 0; i < Stages; ++i) {
            init(full + 8U * static_cast<unsigned>(i), Writers);
            init(empty + 8U * static_cast<unsigned>(i), Readers);
        }
        publish_barriers();
    }
    [[nodiscard]] __device__ unsigned at() const {
        return memory + static_cast<unsigned>(stage) * bytes;
    }
    [[nodiscard]] __device__ unsigned is_full() const {
        return full + 8U * static_cast<unsigned>(stage);
    }
    [[nodiscard]] __device__ unsigned is_empty() const {
        return empty + 8U * static_cast<unsigned>(stage);
    }
    __device__ void next() {
        if (++stage == Stages) {
            stage = 0;
            parity ^= 1U;
        }
    }
    /// Past stages that others read.
    __device__ void skip(int stages) {
        stage += stages;
        parity ^= static_cast<unsigned>(stage / Stages) & 1U;
        stage %= Stages;
    }
};

}  // namespace convgrad::cuda::bulk
