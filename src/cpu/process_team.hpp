// The threads that the process already computes with: those of its OpenMP runtime.
//
// Two teams on one set of cores take turns at spinning: after each of their own jobs the workers of
// either keep a core for as long as the next job of the other takes. So where a process has an
// OpenMP runtime (PyTorch's, oneDNN's, the program's own), work runs on that.
//
// Layer: beside the library's own pool, below engines.
#pragma once

#include <convgrad/engine.hpp>

namespace convgrad::cpu {

/// The team of the calling thread in the OpenMP runtime that the process has loaded. Nothing is
/// linked: the runtime's entries are looked up by name, in the order in which the loader would.
///
/// Work runs on the calling thread alone while another thread's job runs, inside a parallel region,
/// and inside a job of the library's own pool. A child of fork() has no team any more, and GNU's
/// runtime would wait for it: there, work runs on the library's own threads, as many as the runtime
/// says.
class process_team final : public thread_pool {
public:
    /// Looks for a runtime. Cheap enough for each engine, not for each call.
    static void look();
    /// What look() found last, or null.
    static process_team *found() noexcept;

    /// What PyTorch says where it is loaded (its count reaches a new thread only when asked for),
    /// else what the runtime says: the count of the calling thread, now.
    [[nodiscard]] int concurrency() const noexcept override;
    void run(int count, void (*body)(void *context, int i), void *context) override;
};

}  // namespace convgrad::cpu
