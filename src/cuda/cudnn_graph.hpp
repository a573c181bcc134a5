// Convolutions as cuDNN's graph interface has them: descriptors, engines and plans.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "conv/problem.hpp"
#include "cuda/cudnn_library.hpp"

namespace convgrad::cuda {

/// A descriptor of cuDNN's. Calls answer whether cuDNN took it: what it refuses is no error, but
/// one way less to compute a problem.
class cudnn_object {
public:
    cudnn_object() = default;
    explicit cudnn_object(cudnn_kind kind);
    ~cudnn_object();
    cudnn_object(cudnn_object &&other) noexcept : made_(std::exchange(other.made_, nullptr)) {}
    cudnn_object &operator=(cudnn_object &&other) noexcept {
        std::swap(made_, other.made_);
        return *this;
    }

    [[nodiscard]] cudnn_descriptor get() const { return made_; }
    bool set(cudnn_attribute of, cudnn_type type, std::int64_t count, const void *values);
    /// One descriptor.
    bool set(cudnn_attribute of, const cudnn_object &value);
    bool finalize();
    /// How many values there are; 0 also if cuDNN does not say.
    std::int64_t read(cudnn_attribute of, cudnn_type type, std::int64_t room, void *values) const;

private:
    cudnn_descriptor made_ = nullptr;
};

/// An engine with its settings, and what cuDNN notes about it.
struct cudnn_engine {
    cudnn_object configuration;
    std::int64_t number = 0;
    std::vector<cudnn_note> notes;

    [[nodiscard]] bool has(cudnn_note note) const;
};

/// Numbers that name the tensors of an operation.
enum class cudnn_tensor_id : std::int64_t { src = 1, weights = 2, dst = 3 };

/// A pass of a problem as an operation of cuDNN, which keeps what it refers to. Weights are dense,
/// with the axes of the data's order, of type `weights_type`.
class cudnn_operation {
public:
    cudnn_operation(
        const conv::problem &p, bool channels_last, data_type weights_type, cudnn_handle handle);

    /// Best first, by cuDNN's heuristics.
    [[nodiscard]] std::vector<cudnn_engine> engines() const;

private:
    cudnn_object src_, weights_, dst_, convolution_, operation_, graph_;
    bool known_ = false;
};

/// An engine that is ready to execute an operation.
class cudnn_execution {
public:
    cudnn_execution() = default;
    /// Not ready if cuDNN cannot run the engine on this device.
    cudnn_execution(const cudnn_engine &by, cudnn_handle handle);

    [[nodiscard]] bool is_ready() const { return ready_; }
    [[nodiscard]] std::size_t workspace() const { return workspace_; }
    /// On the stream of the handle.
    cudnn_status run(const conv::buffers &data, void *workspace, cudnn_handle handle) const;

private:
    cudnn_object plan_;
    std::size_t workspace_ = 0;
    bool ready_ = false;
};

}  // namespace convgrad::cuda
