// Memory for the tensors of a case, filled fast and reproducibly.
#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>

#include <convgrad/types.hpp>

#include "op_case.hpp"

namespace convgrad::cli {

/// Calls body(first, last) for pieces of [0, count), on all cores where there is enough to do.
void for_pieces(dim count, dim piece, const std::function<void(dim, dim)> &body);

/// What tensors are filled with.
struct filling {
    enum class kind : std::uint8_t {
        integers,  // so small that every sum of products is exact in f32
        reals,     // |v| in [1/16, 1), all bits of the significand random
    };
    kind what = kind::reals;
    /// Products that one output sums up at most: keeps integers small enough.
    double terms = 1;
    std::uint64_t seed = 1;

    friend bool operator==(const filling &, const filling &) = default;
};

/// Buffers that are kept from case to case: pages are touched once, and a tensor that already holds
/// the wanted data is not filled again.
class tensor_store {
public:
    /// The tensor in this role, filled. The pointer stays valid until the next call for the role.
    void *input(role r, data_type type, dim elements, const filling &with);
    void *bias(data_type type, dim elements, const filling &with);
    /// Every byte 0xff, which is NaN in every type: what stays unwritten shows.
    void *output(data_type type, dim elements);
    /// Bytes held.
    [[nodiscard]] double held() const;

private:
    struct release {
        void operator()(void *p) const { std::free(p); }
    };
    struct content {
        data_type type;
        dim elements;
        filling with;
        friend bool operator==(const content &, const content &) = default;
    };
    struct buffer {
        std::unique_ptr<void, release> memory;
        std::size_t bytes = 0;
        std::optional<content> holds;
        void *reserve(std::size_t wanted);
    };
    void *filled(
        buffer &b, data_type type, dim elements, const filling &with, std::uint64_t stream);

    std::array<buffer, 3> inputs_;
    buffer bias_, output_;
};

/// Bytes that can be had without swapping.
double available_memory();

/// A hash of the bytes, for comparing results bit for bit.
std::uint64_t hash_bytes(const void *data, std::size_t bytes);

}  // namespace convgrad::cli
