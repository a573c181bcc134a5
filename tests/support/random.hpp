// Small deterministic random numbers: the same sequence on every machine and library.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace convgrad::test {

/// splitmix64.
class rng {
public:
    explicit rng(std::uint64_t seed) : state_(seed) {}

    std::uint64_t next() {
        state_ += 0x9e3779b97f4a7c15U;
        std::uint64_t z = state_;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
        return z ^ (z >> 31);
    }
    /// Uniform in [low, high].
    std::int64_t between(std::int64_t low, std::int64_t high) {
        const auto range = static_cast<std::uint64_t>(high - low) + 1;
        return low + static_cast<std::int64_t>(next() % range);
    }
    /// Uniform in [0, 1).
    double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }
    bool chance(double probability) { return unit() < probability; }
    template <typename T>
    T pick(std::initializer_list<T> choices) {
        return choices.begin()[next() % choices.size()];
    }

private:
    std::uint64_t state_;
};

}  // namespace convgrad::test
