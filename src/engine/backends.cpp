// The kinds of engines that this build has: the only place that names them.
#include "cpu/backend.hpp"
#include "cpu/scratch.hpp"
#include "cuda/load.hpp"
#include "engine/engine.hpp"

namespace convgrad::engines {

std::span<const backend_kind> backend_kinds() {
    static constexpr backend_kind kinds[] = {
        {engine_kind::cpu, "cpu", &cpu::make_backend, &cpu::release_scratch},
        {engine_kind::cuda, "cuda", &cuda::load_backend, &cuda::release_scratch},
    };
    return kinds;
}

}  // namespace convgrad::engines
