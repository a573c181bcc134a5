#include "data.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <new>
#include <string>
#include <vector>

#include <unistd.h>

#include "conv/convert.hpp"
#include "cpu/parallel.hpp"
#include "cpu/pool.hpp"

namespace convgrad::cli {
namespace {

/// Small, fast and good enough for test data; the odd constants are those of splitmix64.
struct generator {
    explicit generator(std::uint64_t seed) : state(mix(seed + 0x9e3779b97f4a7c15U)) {
        if (state == 0) state = 1;
    }
    static std::uint64_t mix(std::uint64_t z) {
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
        return z ^ (z >> 31);
    }
    std::uint64_t next() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return state;
    }
    std::uint64_t state;
};

/// Fills with values that byte b of the random stream picks from a table.
template <typename T>
void fill_from_table(T *out, dim count, generator &random, const std::array<T, 256> &values) {
    for (dim i = 0; i < count; i += 8) {
        std::uint64_t bits = random.next();
        for (dim j = i; j < std::min(i + 8, count); ++j, bits >>= 8) out[j] = values[bits & 0xffU];
    }
}

/// Integers in [-a, a] with a·a·terms ≤ 2^24; where even ±1 is too much, mostly zeros.
template <typename T>
std::array<T, 256> integer_table(double terms) {
    constexpr double exact = 16777216;
    const int a = terms * 16 <= exact ? 4 : terms * 4 <= exact ? 2 : 1;
    const double density = std::min(1.0, std::sqrt(exact / std::max(terms, 1.0)));
    std::array<T, 256> table{};
    const int used = std::max(3, static_cast<int>(256 * density));
    for (int i = 0; i < 256; ++i) {
        const int value = i < used ? i % (2 * a + 1) - a : 0;
        table[static_cast<std::size_t>(i)] = conv::round_to<T>(value);
    }
    return table;
}

/// Sign, two bits of exponent and the whole fraction at random, straight into the format.
template <typename Word, int Fraction, int Bias>
void fill_reals(Word *out, dim count, generator &random) {
    constexpr int bits = static_cast<int>(sizeof(Word)) * 8;
    constexpr dim each = 64 / bits;
    constexpr auto fraction_mask = static_cast<Word>((Word{1} << Fraction) - 1);
    for (dim i = 0; i < count; i += each) {
        std::uint64_t r = random.next();
        for (dim j = i; j < std::min(i + each, count); ++j, r >>= bits) {
            const auto word = static_cast<Word>(r);
            const auto sign = static_cast<Word>(word & Word(Word{1} << (bits - 1)));
            const auto down = static_cast<unsigned>(word >> (bits - 3)) & 3U;
            const auto exponent = static_cast<Word>(Word(Bias - 1 - down) << Fraction);
            out[j] = static_cast<Word>(sign | exponent | (word & fraction_mask));
        }
    }
}

void fill_piece(
    void *data, data_type type, dim first, dim last, const filling &with, std::uint64_t seed) {
    generator random(seed ^ generator::mix(static_cast<std::uint64_t>(first)));
    const dim count = last - first;
    const bool integers = with.what == filling::kind::integers;
    const auto typed = [&]<typename T, typename Word, int Fraction, int Bias>() {
        if (integers)
            fill_from_table(
                static_cast<T *>(data) + first, count, random, integer_table<T>(with.terms));
        else
            fill_reals<Word, Fraction, Bias>(static_cast<Word *>(data) + first, count, random);
    };
    if (type == data_type::f32)
        typed.template operator()<float, std::uint32_t, 23, 127>();
    else if (type == data_type::bf16)
        typed.template operator()<bf16, std::uint16_t, 7, 127>();
    else
        typed.template operator()<f16, std::uint16_t, 10, 15>();
}

constexpr dim piece_elements = dim{1} << 15;

}  // namespace

void for_pieces(dim count, dim piece, const std::function<void(dim, dim)> &body) {
    static const std::shared_ptr<cpu::pool> pool = cpu::pool::shared(cpu::available_cores());
    const dim pieces = (count + piece - 1) / piece;
    const int workers = static_cast<int>(std::min<dim>(pieces, pool->concurrency()));
    const cpu::executor threads(pool.get(), workers);
    threads.run(workers, [&](int worker) {
        for (dim i = worker; i < pieces; i += workers)
            body(i * piece, std::min(count, (i + 1) * piece));
    });
}

void *tensor_store::buffer::reserve(std::size_t wanted) {
    if (wanted <= bytes && memory) return memory.get();
    holds.reset();
    memory.reset();  // before asking for more: both together might not fit
    bytes = 0;
    constexpr std::size_t page = 4096;
    const std::size_t rounded = (std::max<std::size_t>(wanted, 1) + page - 1) / page * page;
    memory.reset(std::aligned_alloc(page, rounded));
    if (!memory) throw std::bad_alloc();
    bytes = rounded;
    return memory.get();
}

void *tensor_store::filled(
    buffer &b, data_type type, dim elements, const filling &with, std::uint64_t stream) {
    void *data = b.reserve(static_cast<std::size_t>(elements) * size_of(type));
    const content wanted{type, elements, with};
    if (b.holds == wanted) return data;
    b.holds.reset();
    const std::uint64_t seed = generator::mix(with.seed * 4 + stream);
    for_pieces(elements, piece_elements,
        [&](dim first, dim last) { fill_piece(data, type, first, last, with, seed); });
    b.holds = wanted;
    return data;
}

void *tensor_store::input(role r, data_type type, dim elements, const filling &with) {
    if (r == role::bias) return bias(type, elements, with);
    const auto index = static_cast<std::size_t>(r);
    return filled(inputs_[index], type, elements, with, index);
}

void *tensor_store::bias(data_type type, dim elements, const filling &with) {
    return filled(bias_, type, elements, with, inputs_.size());
}

void *tensor_store::output(data_type type, dim elements) {
    const dim bytes = elements * static_cast<dim>(size_of(type));
    auto *data = static_cast<std::byte *>(output_.reserve(static_cast<std::size_t>(bytes)));
    for_pieces(bytes, dim{1} << 18, [&](dim first, dim last) {
        std::memset(data + first, 0xff, static_cast<std::size_t>(last - first));
    });
    return data;
}

double tensor_store::held() const {
    double bytes = static_cast<double>(bias_.bytes) + static_cast<double>(output_.bytes);
    for (const buffer &b : inputs_) bytes += static_cast<double>(b.bytes);
    return bytes;
}

double available_memory() {
    std::ifstream info("/proc/meminfo");
    for (std::string key; info >> key;) {
        double kib = 0;
        if (key == "MemAvailable:" && info >> kib) return kib * 1024;
        info.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
    }
    return static_cast<double>(sysconf(_SC_AVPHYS_PAGES))
           * static_cast<double>(sysconf(_SC_PAGESIZE));
}

std::uint64_t hash_bytes(const void *data, std::size_t bytes) {
    constexpr std::size_t piece = std::size_t{1} << 20;
    std::vector<std::uint64_t> parts((bytes + piece - 1) / piece);
    const auto *first = static_cast<const unsigned char *>(data);
    for_pieces(static_cast<dim>(parts.size()), 1, [&](dim i, dim) {
        const std::size_t begin = static_cast<std::size_t>(i) * piece,
                          end = std::min(bytes, begin + piece);
        std::uint64_t hash = 0;
        std::size_t at = begin;
        for (std::uint64_t word = 0; at + 8 <= end; at += 8) {
            std::memcpy(&word, first + at, 8);
            hash = (hash ^ word) * 0x9e3779b97f4a7c15U;
            hash ^= hash >> 32;
        }
        for (; at < end; ++at) hash = (hash ^ first[at]) * 0x9e3779b97f4a7c15U;
        parts[static_cast<std::size_t>(i)] = hash;
    });
    std::uint64_t all = bytes;
    for (std::uint64_t part : parts) all = generator::mix(all ^ part) + 1;
    return all;
}

}  // namespace convgrad::cli
