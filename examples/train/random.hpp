// A small generator (splitmix64). The standard's distributions differ between libraries; this one
// gives the same numbers everywhere.
#pragma once

#include <cstdint>

namespace convgrad::train {

class random_numbers {
public:
    /// Different `stream`s of one seed are independent: one for each epoch, say, so that a resumed
    /// run draws what an uninterrupted one would have drawn.
    explicit random_numbers(std::uint64_t seed, std::uint64_t stream = 0)
        : state_(mix(seed) ^ mix(stream + 0x5851f42d4c957f2dU)) {}

    std::uint64_t next() { return mix(state_ += 0x9e3779b97f4a7c15U); }
    /// In [0, count).
    std::uint64_t below(std::uint64_t count) { return next() % count; }
    /// In [low, high).
    float uniform(float low, float high) {
        return low + (high - low) * static_cast<float>(next() >> 40U) * 0x1p-24F;
    }

private:
    static std::uint64_t mix(std::uint64_t z) {
        z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
        z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
        return z ^ (z >> 31U);
    }
    std::uint64_t state_;
};

}  // namespace convgrad::train
