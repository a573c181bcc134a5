// Graph → partitions → compiled partitions.
#pragma once

#include <concepts>
#include <memory>
#include <span>

#include <convgrad/engine.hpp>
#include <convgrad/op.hpp>

namespace convgrad {
inline namespace CONVGRAD_ABI {

/// A partition made ready for given shapes. Immutable, but for the constants that it keeps: any
/// number of threads may execute it at once. Cheap to copy; independent of the graph and the engine
/// object it came from.
class CONVGRAD_API compiled_partition {
public:
    /// The tensor with this id, with everything that inference found out. Throws invalid_argument
    /// for an id that the partition does not have.
    [[nodiscard]] const logical_tensor &query(std::size_t id) const;
    /// In the order of the compile call.
    [[nodiscard]] const std::vector<logical_tensor> &inputs() const noexcept;
    [[nodiscard]] const std::vector<logical_tensor> &outputs() const noexcept;
    /// Bytes of scratch memory that one execution uses. (What is planned at execution, because a
    /// shape input is known only then, allocates its own.)
    [[nodiscard]] std::size_t workspace_size() const noexcept;
    /// What the address of a workspace must be a multiple of; the engine's device decides.
    [[nodiscard]] std::size_t workspace_alignment() const noexcept;
    /// One line per plan: op, algorithm, instruction set and blocks, e.g. for a log.
    [[nodiscard]] std::string describe() const;
    /// Bytes that it keeps at the moment, beside the workspace: the form of constant weights (see
    /// logical_tensor::is_constant) that its kernels multiply with. The first execution makes it;
    /// one with weights at another address replaces it. Where there is no memory for it, and while
    /// another execution is at it, executions do without.
    [[nodiscard]] std::size_t constants_size() const noexcept;
    /// Drops them, in all copies of this object: to be called before weights that were said to be
    /// constant change, or their memory serves for others. Executions that are running go on with
    /// what they have; none keeps anything that it made before this call.
    void forget_constants() const noexcept;

    /// Computes, with the threads of the stream's engine. Tensors are matched by position with
    /// inputs() and outputs(). `workspace` may give workspace_size() bytes of the engine's
    /// device, aligned to workspace_alignment(); null: the library allocates them itself. Nothing
    /// is written if a tensor is refused. An output must not overlap any other tensor (except
    /// `add`, which may be dst itself); of that only equal start addresses are noticed, since views
    /// of one buffer may interleave.
    void execute(const stream &on, list_view<const_tensor> inputs, list_view<tensor> outputs,
        void *workspace = nullptr) const;
    /// The same with a container of tensors that could be written.
    template <typename Tensors>
    requires std::convertible_to<const Tensors &, std::span<const tensor>>
    void execute(const stream &on, const Tensors &inputs, list_view<tensor> outputs,
        void *workspace = nullptr) const {
        execute_writable(on, inputs, outputs, workspace);
    }

    // Copies only: a moved-from object would be one more state to check for.
    compiled_partition(const compiled_partition &) = default;
    compiled_partition &operator=(const compiled_partition &) = default;

    struct impl;
    /// For the library itself.
    explicit compiled_partition(std::shared_ptr<const impl> p) : impl_(std::move(p)) {}

private:
    void execute_writable(const stream &on, std::span<const tensor> inputs,
        list_view<tensor> outputs, void *workspace) const;

    std::shared_ptr<const impl> impl_;
};

/// One or more ops that run as a unit.
class CONVGRAD_API partition {
public:
    /// Its place in graph::partitions().
    [[nodiscard]] std::size_t id() const noexcept;
    /// Ids of its ops, in topological order.
    [[nodiscard]] std::vector<std::size_t> ops() const;
    /// Each tensor once, in the order of the ops' inputs and outputs, with what the graph inferred.
    [[nodiscard]] const std::vector<logical_tensor> &inputs() const noexcept;
    [[nodiscard]] const std::vector<logical_tensor> &outputs() const noexcept;
    /// False only for a BiasAdd, Add or ReLU that is not part of a convolution's partition.
    [[nodiscard]] bool is_supported() const noexcept;

    /// Makes the partition ready for these tensors: by id, in any order. They replace what the
    /// graph says about shapes and strides; what they leave open, or leave out, comes from the
    /// graph (tensors left out follow those given). Inputs must have known shapes; outputs are
    /// inferred.
    [[nodiscard]] compiled_partition compile(list_view<logical_tensor> inputs,
        list_view<logical_tensor> outputs, const engine &on = default_engine()) const;
    /// With the graph's own descriptions.
    [[nodiscard]] compiled_partition compile(const engine &on = default_engine()) const;

    partition(const partition &) = default;
    partition &operator=(const partition &) = default;

    struct impl;
    /// For the library itself.
    explicit partition(std::shared_ptr<const impl> p) : impl_(std::move(p)) {}

private:
    std::shared_ptr<const impl> impl_;
};

/// A set of ops joined by tensor ids.
class CONVGRAD_API graph {
public:
    graph();
    ~graph();
    graph(graph &&) noexcept;
    graph &operator=(graph &&) noexcept;

    /// Checks the op against its schema and adds it.
    graph &add(const op &node);
    /// Takes an op out again, such as one for which finalize() refused the graph. Throws
    /// invalid_graph for an id that the graph does not have, or if it is finalized.
    graph &remove(std::size_t op_id);
    /// Checks the graph, infers the shapes that can be known, and freezes it. A graph that is
    /// refused stays as it is: ops can be added and removed. Finalizing twice does nothing.
    void finalize();
    [[nodiscard]] bool is_finalized() const noexcept;
    /// In topological order. ConvolutionBackwardData and ConvolutionBackwardWeights (or the
    /// transposed pair) that share diff_dst form one partition. The graph must be finalized.
    [[nodiscard]] std::vector<partition> partitions() const;

    struct impl;

private:
    std::unique_ptr<impl> impl_;
};

}  // namespace CONVGRAD_ABI
}  // namespace convgrad
