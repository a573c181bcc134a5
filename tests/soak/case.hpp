// Random layers for the soak, through the public interface alone. A number stands for a layer and
// its data; how it is run (which call, how many threads, a fresh engine or the default one) is
// drawn anew each time and must not change a bit of the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <convgrad/convgrad.hpp>

#include "support/random.hpp"

namespace convgrad::soak {

/// What a step computes.
enum class task : std::uint8_t { forward, backward_data, backward_weights, backward };

struct layer {
    bool transposed = false;
    task what = task::forward;
    data_type type = data_type::f32;
    data_type gradient_type = data_type::f32;  // of diff_weights and diff_bias
    dims src, weights, dst;
    std::size_t gap = 0;  // elements between the images of src and dst
    attributes attrs;
    bool bias = false, relu = false, accumulate = false;
    bool add = false, add_in_place = false;
    engine_options on;  // instruction set and math mode: what may change bits
};

/// The layer behind a number, the same on every call.
layer draw_layer(std::uint64_t number);

/// Which of the ways to the same result.
enum class route : std::uint8_t { eager, compiled, graph };

struct visit {
    route how = route::eager;
    int threads = 0;
    int repeats = 1;  // executions of what was compiled once
};
visit draw_visit(test::rng &random);

/// One client's memory: touched once, and not from the heap, so that what changes there is the
/// library's.
class arena {
public:
    explicit arena(std::size_t bytes);
    ~arena();
    arena(const arena &) = delete;
    arena &operator=(const arena &) = delete;
    void reset() { used_ = 0; }
    void *take(std::size_t bytes);

private:
    std::byte *memory_;
    std::size_t size_, used_ = 0;
};

/// Runs the layer and returns a hash of every byte of its outputs.
std::uint64_t run(std::uint64_t number, const layer &l, const visit &v, arena &memory);

}  // namespace convgrad::soak
