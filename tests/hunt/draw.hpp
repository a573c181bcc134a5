// Random numbers of the hunt.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace hunt {

/// SplitMix64: any seed is as good as any other.
class draw {
public:
    explicit draw(std::uint64_t seed) : state_(seed) {}

    std::uint64_t bits() {
        std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
        z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9ULL;
        z = (z ^ (z >> 27U)) * 0x94d049bb133111ebULL;
        return z ^ (z >> 31U);
    }
    /// From `least` to `most`, both included.
    std::int64_t between(std::int64_t least, std::int64_t most) {
        return least
               + static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(most - least + 1));
    }
    bool percent(int share) { return between(0, 99) < share; }
    template <typename T>
    T one_of(std::initializer_list<T> list) {
        return list.begin()[between(0, static_cast<std::int64_t>(list.size()) - 1)];
    }
    /// From -1 to 1.
    double real() { return static_cast<double>(bits() >> 11U) * 0x1p-52 - 1; }

private:
    std::uint64_t state_;
};

}  // namespace hunt
