// cuDNN on one device: a handle, and every plan that was made with it.
#pragma once

#include <array>
#include <map>
#include <mutex>
#include <string>

#include "cuda/backend.hpp"
#include "cuda/cudnn_graph.hpp"

namespace convgrad::cuda {

/// Any thread may call it; handles of cuDNN are for one at a time.
class cudnn_device {
public:
    /// Made once for each device, never destroyed. Throws unsupported where cuDNN is missing or too
    /// old, device_failure where it does not start.
    static cudnn_device &of(const device &on);

    /// What computes an operation.
    struct found {
        cudnn_execution ready;
        std::int64_t engine = 0;
    };
    /// What is asked for: see cudnn_operation.
    struct question {
        conv::problem problem;
        bool channels_last;
        data_type weights_type;
        std::size_t workspace_limit;
    };
    /// The first engine by cuDNN's heuristics that is deterministic, reduces no precision and keeps
    /// to the limit; null if there is none. Kept from then on: finding one takes milliseconds, and
    /// captured graphs may use its code as long as the process runs.
    const found *find(const question &asked);
    /// Puts it on a lane. Throws device_failure.
    void run(const found &what, const conv::buffers &data, void *workspace, const lane &on);
    /// "cuDNN 9.19.0".
    [[nodiscard]] const std::string &version() const { return version_; }

private:
    explicit cudnn_device(const device &on);
    [[nodiscard]] std::unique_ptr<const found> search(const question &asked) const;

    using key = std::array<std::int64_t, 27>;
    static key key_of(const question &asked);

    const device &on_;
    cudnn_handle handle_ = nullptr;
    std::string version_;
    std::mutex guard_;
    std::map<key, std::unique_ptr<const found>> plans_;
};

}  // namespace convgrad::cuda
