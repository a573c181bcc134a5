// Decisions drawn from the bytes that a fuzzer makes: one byte for each small choice, so that a
// changed byte changes one decision. Where the bytes end, every decision is 0.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>

#include <convgrad/types.hpp>

/// What libFuzzer and the replaying program call.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size);

namespace convgrad::fuzz {

class input {
public:
    input(const std::uint8_t *data, std::size_t size) : rest_(data, size) {}

    [[nodiscard]] bool empty() const { return rest_.empty(); }
    std::uint8_t byte() {
        if (rest_.empty()) return 0;
        const std::uint8_t first = rest_.front();
        rest_ = rest_.subspan(1);
        return first;
    }
    /// In [low, high], at most 256 values.
    dim between(dim low, dim high) { return low + byte() % (high - low + 1); }
    /// True for one of `one_in` bytes, and never where the bytes end.
    bool chance(int one_in) { return byte() % one_in == one_in - 1; }
    template <typename T, std::size_t n>
    T pick(const T (&choices)[n]) {
        return choices[byte() % n];
    }
    std::uint64_t word() {
        std::uint64_t bits = 0;
        for (int i = 0; i < 8; ++i) bits = bits << 8 | byte();
        return bits;
    }

    /// A small number most of the time, else one at an edge, else anything.
    dim number() {
        static constexpr dim edges[] = {0, -1, unknown_dim, std::numeric_limits<dim>::max(),
            std::numeric_limits<dim>::max() / 2, std::numeric_limits<dim>::max() / 4, dim{1} << 32,
            (dim{1} << 31) - 1, dim{1} << 31, dim{1} << 62, 7919, -7919, 65536, 1 << 24};
        const std::uint8_t kind = byte();
        if (kind == 255) return static_cast<dim>(word());
        if (kind >= 240) return edges[(kind - 240) % std::size(edges)];
        return kind % 12;
    }
    dims numbers(std::size_t count) {
        dims list(count);
        for (dim &n : list) n = number();
        return list;
    }
    /// Up to the next zero byte, at most `longest` characters.
    std::string text(std::size_t longest) {
        std::string characters;
        while (!empty() && characters.size() < longest) {
            const std::uint8_t c = byte();
            if (c == 0) break;
            characters.push_back(static_cast<char>(c));
        }
        return characters;
    }
    /// All that is left.
    std::span<const std::uint8_t> remaining() {
        const auto all = rest_;
        rest_ = {};
        return all;
    }

private:
    std::span<const std::uint8_t> rest_;
};

/// Stops the program unless `condition` holds: a find.
inline void require(bool condition, const char *what) {
    if (condition) return;
    std::fputs(what, stderr);
    std::fputc('\n', stderr);
    std::abort();
}

}  // namespace convgrad::fuzz
