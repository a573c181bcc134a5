// A second kind of engine, to prove the seam: asynchronous, with memory of its own that the host
// must not touch. It computes with the reference loops, on another thread, when the test says so.
//
// Any leak through the seam fails here: a look at a tensor from the host is a fault, a reference to
// a plan or to arguments after execute() is a use after free, scratch that is used out of order is
// full of NaN.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "engine/engine.hpp"

namespace convgrad::test {

/// Memory of the device: without access except while the device runs, or the test copies.
class device_memory {
public:
    explicit device_memory(std::size_t bytes);
    ~device_memory();
    device_memory(const device_memory &) = delete;
    device_memory &operator=(const device_memory &) = delete;

    [[nodiscard]] void *data() const { return data_; }
    void copy_in(const void *from, std::size_t bytes);
    void copy_out(void *to, std::size_t bytes) const;

private:
    void *data_;
    std::size_t bytes_;
};

/// A queue that runs when it is told to, or waited for.
class late_lane final : public engines::lane {
public:
    ~late_lane() override;

    void wait() override;
    void check() const override;
    void *take(std::size_t bytes) override;
    void give_back(void *scratch, std::size_t bytes) noexcept override;

    void put(std::string name, std::function<void()> work);
    /// Runs all that is queued, on a thread of its own.
    void run();
    [[nodiscard]] std::size_t waiting() const { return queue_.size(); }
    /// The next work fails when it runs.
    void fail_next() { fail_ = true; }
    /// Refuses executions after so many more.
    void refuse_after(int executions) { left_ = executions; }
    /// Has no scratch any more.
    void run_out() { empty_ = true; }

    void *native = nullptr;  // what it was opened with
    std::size_t taken = 0;   // bytes of scratch that are out

private:
    struct entry {
        std::string name;
        std::function<void()> work;
    };
    std::deque<entry> queue_;
    std::vector<device_memory *> scratch_;
    bool fail_ = false, empty_ = false;
    int left_ = std::numeric_limits<int>::max();
    std::string failure_;  // not empty: for ever
};

/// Device `device` of that kind. Its plans need `workspace` bytes.
engine late_engine(int device = 0, std::size_t workspace = 4096);
/// The queue behind a stream on such an engine.
late_lane &lane_of(const stream &s);

}  // namespace convgrad::test
