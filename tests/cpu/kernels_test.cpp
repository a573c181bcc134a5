// Packers and products by themselves, on every instruction set by name, against plain sums.
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "conv/convert.hpp"
#include "cpu/kernels/kernels.hpp"
#include "cpu/tiled.hpp"
#include "support/workbench.hpp"

namespace convgrad::test {
namespace {

using cpu::kernel_set;
using cpu::operand_format;
using cpu::pack_args;

/// What a matrix of small whole numbers holds at (k, x): every product and sum is exact.
int value(dim k, dim x) {
    return static_cast<int>((5 * k + 3 * x + k * x) % 7) - 3;
}

/// Elements of a type in memory.
class elements {
public:
    elements(data_type type, dim count, int everywhere = 99)
        : type_(type), bytes_(static_cast<std::size_t>(count) * size_of(type)) {
        for (dim i = 0; i < count; ++i) set(i, everywhere);
    }

    void set(dim at, int v) {
        std::byte *to = at_index(at);
        if (type_ == data_type::f32) {
            const auto f = static_cast<float>(v);
            std::memcpy(to, &f, 4);
        } else if (type_ == data_type::bf16) {
            const auto b = conv::round_to<bf16>(v);
            std::memcpy(to, &b, 2);
        } else {
            const auto h = conv::round_to<f16>(v);
            std::memcpy(to, &h, 2);
        }
    }
    [[nodiscard]] float get(dim at) {
        if (type_ == data_type::f32) return read<float>(at);
        return type_ == data_type::bf16 ? read<bf16>(at) : read<f16>(at);
    }
    [[nodiscard]] void *data() { return bytes_.data(); }

private:
    std::byte *at_index(dim at) {
        return bytes_.data() + static_cast<std::size_t>(at) * size_of(type_);
    }
    template <typename T>
    float read(dim at) {
        T v{};
        std::memcpy(&v, at_index(at), sizeof v);
        return conv::to_float(v);
    }

    data_type type_;
    std::vector<std::byte> bytes_;
};

/// Memory for what packers and products write: aligned, and full of NaN.
class aligned_bytes {
public:
    explicit aligned_bytes(dim size) : memory_(static_cast<std::size_t>(size) + 64, '\xff') {
        void *at = memory_.data();
        std::size_t room = memory_.size();
        start_ = static_cast<char *>(std::align(64, static_cast<std::size_t>(size), at, room));
    }
    [[nodiscard]] char *get() { return start_; }
    [[nodiscard]] float *floats() { return static_cast<float *>(static_cast<void *>(start_)); }

private:
    std::vector<char> memory_;
    char *start_ = nullptr;
};

/// Calls body(kernels, type, number of draws) for all kernels that run on this machine, or under an
/// emulator, and checks that they are those of the instruction set by name.
template <typename Body>
void for_each_kernels(Body &&body) {
    std::size_t found = 0;
    for (const isa set : usable_isas())
        for (const auto format : {operand_format::fma, operand_format::dot2, operand_format::amx})
            for (const data_type type : {data_type::f32, data_type::bf16, data_type::f16}) {
                const kernel_set *k = cpu::find_kernels(set, format, type, math_mode::accurate);
                if (k == nullptr) continue;
                SCOPED_TRACE(std::string(to_string(set)) + ' ' + std::string(to_string(type)));
                ASSERT_EQ(k->set, set);
                const cpu::kernel_session session(*k);
                body(*k, type, format == operand_format::amx ? 20 : 150);
                if (testing::Test::HasFatalFailure()) return;
                ++found;
            }
    EXPECT_GE(found, 3 * usable_fma_isas().size());
}

/// C[m][n] = Σ_taps Σ_k A[k][m + tap] · B[k][n][tap], by the kernels, and term by term.
struct product_case {
    const kernel_set &kernels;
    data_type type;
    dim m, columns, channels, taps;
    int vectors;
    bool last_channels;  // A in memory: channels side by side, or positions
    bool pixels;         // packed that way
    dim lo, hi;          // positions of A that exist

    [[nodiscard]] dim positions() const { return m + taps - 1; }
    [[nodiscard]] dim width() const { return vectors * dim{kernels.lanes}; }
    [[nodiscard]] dim units() const { return cpu::div_up(channels, kernels.k_per_unit); }
    [[nodiscard]] int a(dim k, dim x) const { return x >= lo && x < hi ? value(k, x) : 0; }
    [[nodiscard]] float expected(dim row, dim n) const {
        int sum = 0;
        for (dim t = 0; t < taps; ++t)
            for (dim k = 0; k < channels; ++k) sum += a(k, row + t) * value(k + t, n + 1);
        return static_cast<float>(sum);
    }
};

product_case draw_case(const kernel_set &k, data_type type, rng &random) {
    product_case c{k, type, random.between(1, 35), 0, random.between(1, 70), random.between(1, 3),
        static_cast<int>(random.between(1, k.max_vectors)), random.chance(0.5), false, 0, 0};
    c.columns = random.between((c.vectors - 1) * k.lanes + 1, c.vectors * k.lanes);
    c.pixels = c.last_channels && k.pack_pixels != nullptr && random.chance(0.5);
    c.lo = random.chance(0.5) ? 0 : random.between(0, c.positions());
    c.hi = random.chance(0.5) ? c.positions() : random.between(c.lo, c.positions());
    return c;
}

/// A, packed; sets what the product needs to know of it.
aligned_bytes pack_a(const product_case &c, cpu::product_args &args) {
    const kernel_set &k = c.kernels;
    elements in(c.type, c.channels * c.positions());
    const dim cs = c.last_channels ? 1 : c.positions(), xs = c.last_channels ? c.channels : 1;
    for (dim ch = 0; ch < c.channels; ++ch)
        for (dim x = 0; x < c.positions(); ++x)
            if (x >= c.lo && x < c.hi) in.set(ch * cs + x * xs, value(ch, x));
    const dim x_pitch = cpu::round_up_to(4 * c.units(), 64);
    const dim part = c.positions() * k.unit_bytes, k_pitch = part * k.parts;
    aligned_bytes packed(c.pixels ? (c.positions() + cpu::patch_slack) * x_pitch
                                  : cpu::patch_bytes(k, c.units(), c.positions()));
    const pack_args pack{
        in.data(), c.type, cs, xs, c.channels, c.positions(), c.lo, c.hi, packed.get()};
    const cpu::value_range range =
        c.pixels ? k.pack_pixels(pack, x_pitch) : k.pack_channels(pack, k_pitch, part);
    EXPECT_FALSE(range.nonfinite);
    args.a_step = c.pixels ? 4 : k_pitch;
    args.a_m = c.pixels ? x_pitch : k.unit_bytes;
    args.a_part = part;
    args.a_tile = 16 * dim{k.unit_bytes};
    return packed;
}

aligned_bytes pack_b(const product_case &c, cpu::product_args &args, dim &tap_pitch) {
    const kernel_set &k = c.kernels;
    elements in(c.type, c.channels * c.columns * c.taps);
    std::vector<dim> taps;
    for (dim t = 0; t < c.taps; ++t) taps.push_back(t);
    for (dim ch = 0; ch < c.channels; ++ch)
        for (dim n = 0; n < c.columns; ++n)
            for (dim t = 0; t < c.taps; ++t)
                in.set((n * c.channels + ch) * c.taps + t, value(ch + t, n + 1));
    const dim k_pitch = c.width() * k.column_bytes;
    tap_pitch = c.units() * k_pitch;
    aligned_bytes packed(c.taps * tap_pitch);
    const pack_args pack{
        in.data(), c.type, c.taps, c.channels * c.taps, c.channels, c.columns, 0, 0, packed.get()};
    k.pack_weights(pack, taps.data(), c.taps, c.vectors, tap_pitch, k_pitch);
    args.b_step = k_pitch;
    args.b_part = k_pitch / k.parts;
    args.b_tile = 1024;
    return packed;
}

void check_product(const product_case &c, rng &random) {
    cpu::product_args args{};
    dim tap_pitch = 0;
    aligned_bytes a = pack_a(c, args), b = pack_b(c, args, tap_pitch);
    std::vector<dim> a_run, b_run;
    for (dim t = 0; t < c.taps; ++t) {
        a_run.push_back(t * args.a_m);
        b_run.push_back(t * tap_pitch);
    }
    const bool tiles = c.kernels.format == operand_format::amx;
    const dim rows = tiles ? cpu::round_up_to(c.m, 32) : c.m;
    aligned_bytes out(4 * (rows + 1) * c.width());
    args.accumulate = random.chance(0.3);
    if (args.accumulate)
        for (dim i = 0; i < rows * c.width(); ++i) out.floats()[i] = 7;
    const bool partly = !tiles && !args.accumulate && random.chance(0.3);
    args.last = partly ? c.columns - (c.vectors - 1) * c.kernels.lanes : 0;
    args.a = a.get();
    args.b = b.get();
    args.c = out.floats();
    args.ldc = c.width();
    args.a_run = a_run.data();
    args.b_run = b_run.data();
    args.runs = c.taps;
    args.k = c.units();
    // Memory that is asked for ahead, here or anywhere, shows nowhere.
    cpu::multiply_run(c.kernels, args, c.m, c.vectors,
        {.a = random.chance(0.5), .ahead = random.between(0, 99), .c = random.chance(0.5)});
    for (dim m = 0; m < c.m; ++m)
        for (dim n = 0; n < c.width(); ++n) {
            const float got = out.floats()[m * c.width() + n];
            const float sum = n < c.columns ? c.expected(m, n) : 0;
            if (n >= c.columns && partly) {
                ASSERT_TRUE(std::isnan(got)) << "written beyond the last column";
            } else {
                ASSERT_EQ(got, sum + (args.accumulate ? 7 : 0))
                    << m << ' ' << n << " of " << c.m << 'x' << c.columns << " channels "
                    << c.channels << " taps " << c.taps << (c.pixels ? " pixels" : "");
            }
        }
    ASSERT_TRUE(tiles || std::isnan(out.floats()[c.m * c.width()])) << "a row too many";
}

TEST(kernels, packed_operands_multiply_exactly) {
    for_each_kernels([](const kernel_set &k, data_type type, std::uint64_t draws) {
        for (std::uint64_t seed = 1; seed <= draws; ++seed) {
            rng random(seed);
            check_product(draw_case(k, type, random), random);
            if (testing::Test::HasFatalFailure()) return;
        }
    });
}

// Every height and width of a block of C.
TEST(kernels, every_block_multiplies_exactly) {
    for_each_kernels([](const kernel_set &k, data_type type, std::uint64_t) {
        if (k.format == operand_format::amx) return;  // two of each, drawn above
        for (int vectors = 1; vectors <= k.max_vectors; ++vectors)
            for (int m = 1; m <= k.max_m[vectors]; ++m) {
                rng random(static_cast<std::uint64_t>(m));
                product_case c{
                    k, type, m, vectors * dim{k.lanes}, 9, 2, vectors, true, false, 0, m + 1};
                check_product(c, random);
                if (testing::Test::HasFatalFailure()) return;
            }
    });
}

/// The values of a block leave as bf16: whole numbers, halves between two results, and what an
/// instruction may treat in its own way, infinities, NaNs and zeros among them.
void check_rounding(const kernel_set &k, int m, int vectors, bool subnormal, dim last) {
    const dim width = vectors * dim{k.lanes}, count = m * width;
    const float odd[] = {1.00390625F, -1.01171875F, 3.3895314e38F, -1e-30F, 5,
        subnormal ? 1e-40F : 1e-37F, subnormal ? 0.0F : 2.0F, subnormal ? -3e-39F : -7.0F};
    aligned_bytes c(4 * count), out(2 * (count + width));
    for (dim i = 0; i < count; ++i) c.floats()[i] = odd[i % 8];
    if (m > 1) {
        c.floats()[count - 1] = std::numeric_limits<float>::infinity();
        c.floats()[count - 2] = std::numeric_limits<float>::quiet_NaN();
    }
    cpu::product_args args{};
    args.a = args.b = c.get();
    args.c = c.floats();
    args.ldc = args.ld_out = width;
    args.accumulate = true;
    args.out = static_cast<std::uint16_t *>(static_cast<void *>(out.get()));
    args.last = last;
    args.stream = last == 0 && vectors % 2 == 0 && m % 2 == 0;
    k.product(args, m, vectors);
    cpu::settle_stores();
    const dim columns = last == 0 ? width : width - k.lanes + last;
    for (dim i = 0; i < count + width; ++i) {
        const bool written = i < count && i % width < columns;
        const bf16 expected = conv::round_to<bf16>(written ? c.floats()[i] : 0.0F);
        if (written && std::isnan(c.floats()[i])) {
            ASSERT_TRUE(std::isnan(conv::to_float(bf16{args.out[i]})));
        } else {
            ASSERT_EQ(args.out[i], written ? static_cast<std::uint16_t>(expected) : 0xffff)
                << i << " of " << m << 'x' << width << (subnormal ? " subnormal" : "");
        }
    }
}

TEST(kernels, every_block_leaves_as_bf16_exactly) {
    for_each_kernels([](const kernel_set &k, data_type, std::uint64_t) {
        if (k.format != operand_format::dot2) return;
        for (int vectors = 1; vectors <= k.max_vectors; ++vectors)
            for (int m = 1; m <= k.max_m[vectors]; ++m)
                for (const bool subnormal : {false, true})
                    for (const dim last : {0, 1, k.lanes - 1}) {
                        check_rounding(k, m, vectors, subnormal, last);
                        if (testing::Test::HasFatalFailure()) return;
                    }
    });
}

// Positions as k: C[m][n] = Σ_x A[m][x] · B[n][x], in dot2 over two rows at a time.
TEST(kernels, packed_positions_multiply_exactly) {
    for_each_kernels([](const kernel_set &k, data_type type, std::uint64_t) {
        if (k.format == operand_format::amx) return;  // its operands differ: tiled_weights
        const bool pairs = k.format == operand_format::dot2;
        for (std::uint64_t seed = 1; seed <= 40; ++seed) {
            rng random(seed);
            const dim count = random.between(1, 20), lo = random.between(0, count),
                      hi = random.between(lo, count);
            const dim m = random.between(1, k.max_m[1]), n = random.between(1, k.lanes);
            const bool last = random.chance(0.5);
            const auto pack = [&](dim channels, dim block, int salt) {
                elements in(type, 2 * channels * count);
                const dim cs = last ? 1 : count, xs = last ? channels : 1;
                const dim row = channels * count;
                for (dim c = 0; c < channels; ++c)
                    for (dim x = 0; x < count; ++x) {
                        if (x >= lo && x < hi) in.set(c * cs + x * xs, value(c + salt, x));
                        in.set(row + c * cs + x * xs, value(c + salt, x + 50));
                    }
                aligned_bytes out(4 * block * (count + 1) + 64);
                const char *second =
                    static_cast<const char *>(in.data()) + row * static_cast<dim>(size_of(type));
                k.pack_positions({in.data(), type, cs, xs, channels, count, lo, hi, out.get()},
                    {second, 0, count}, block, 4 * block * count, 0);
                return out;
            };
            const dim block = cpu::round_up_to(m, k.lanes);
            aligned_bytes a = pack(m, block, 0), b = pack(n, k.lanes, 2), out(4 * m * dim{k.lanes});
            const dim none = 0;
            cpu::product_args args{};
            args.a = a.get();
            args.b = b.get();
            args.c = out.floats();
            args.ldc = k.lanes;
            args.a_run = args.b_run = &none;
            args.runs = 1;
            args.k = count;
            args.a_step = 4 * block;
            args.a_m = 4;
            args.b_step = 4 * dim{k.lanes};
            k.product(args, static_cast<int>(m), 1);
            for (dim i = 0; i < m; ++i)
                for (dim j = 0; j < n; ++j) {
                    int sum = 0;
                    for (dim x = 0; x < count; ++x) {
                        if (x >= lo && x < hi) sum += value(i, x) * value(j + 2, x);
                        if (pairs) sum += value(i, x + 50) * value(j + 2, x + 50);
                    }
                    ASSERT_EQ(out.floats()[i * k.lanes + j], static_cast<float>(sum)) << seed;
                }
        }
    });
}

TEST(kernels, results_leave_exactly) {
    for_each_kernels([](const kernel_set &k, data_type type, std::uint64_t) {
        for (std::uint64_t seed = 1; seed <= 60; ++seed) {
            rng random(seed);
            const dim channels = random.between(1, 40), count = random.between(1, 20);
            const bool last = random.chance(0.5), relu = random.chance(0.5);
            const bool bias = random.chance(0.5), add = random.chance(0.5),
                       old = random.chance(0.5);
            const dim cs = last ? 1 : count, xs = last ? channels : 1, size = channels * count;
            std::vector<float> c(static_cast<std::size_t>(size)), of_channel;
            elements out(type, size + 1, 5), added(type, size, 2);
            for (dim ch = 0; ch < channels; ++ch) {
                of_channel.push_back(static_cast<float>(ch % 5));
                for (dim x = 0; x < count; ++x)
                    c[static_cast<std::size_t>(x * channels + ch)] =
                        static_cast<float>(value(ch, x));
            }
            k.store({c.data(), 1, channels, channels, count, out.data(), type, cs, xs,
                bias ? of_channel.data() : nullptr, add ? added.data() : nullptr, cs, xs, old,
                relu});
            for (dim ch = 0; ch < channels; ++ch)
                for (dim x = 0; x < count; ++x) {
                    const int sum = value(ch, x) + (bias ? static_cast<int>(ch % 5) : 0)
                                    + (add ? 2 : 0) + (old ? 5 : 0);
                    ASSERT_EQ(
                        out.get(ch * cs + x * xs), static_cast<float>(relu && sum < 0 ? 0 : sum))
                        << seed << ' ' << ch << ' ' << x;
                }
            ASSERT_EQ(out.get(size), 5) << "written beyond the end";
        }
    });
}

TEST(kernels, transpose_elements) {
    for_each_kernels([](const kernel_set &k, data_type, std::uint64_t) {
        for (const dim size : {2, 4})
            for (const dim rows : {1, 2, 3, 4, 15, 16, 17, 33})
                for (const dim columns : {1, 2, 5, 16, 31, 40, 100}) {
                    aligned_bytes in(rows * columns * size), out(rows * columns * size);
                    for (dim i = 0; i < rows * columns * size; ++i)
                        in.get()[i] = static_cast<char>(i * 7 % 251);
                    k.transpose(
                        {in.get(), columns * size, rows, columns, size, out.get(), rows * size});
                    for (dim r = 0; r < rows; ++r)
                        for (dim c = 0; c < columns; ++c)
                            ASSERT_EQ(std::memcmp(in.get() + (r * columns + c) * size,
                                          out.get() + (c * rows + r) * size,
                                          static_cast<std::size_t>(size)),
                                0)
                                << rows << 'x' << columns;
                }
    });
}

TEST(kernels, rows_along_x_multiply_exactly) {
    for (const isa set : usable_fma_isas()) {
        const kernel_set &k =
            *cpu::find_kernels(set, operand_format::fma, data_type::f32, math_mode::strict);
        ASSERT_EQ(k.set, set);
        const dim count = 3 * dim{k.lanes};
        std::vector<float> rows;
        for (dim r = 0; r < 16; ++r)
            for (dim x = 0; x < 2 * count; ++x) rows.push_back(static_cast<float>(value(r, x)));
        std::vector<const float *> at;
        for (dim r = 0; r < 16; ++r) at.push_back(rows.data() + r * 2 * count);
        const dim runs[] = {0, count};
        for (int n = 1; n <= 4; ++n)
            for (int m = 1; m <= k.max_dot[n]; ++m) {
                std::vector<float> c(64, 3);
                k.dot({at.data(), at.data() + 9, runs, runs, 2, count, c.data(), 5, m % 2 == 0}, m,
                    n);
                for (int i = 0; i < m; ++i)
                    for (int j = 0; j < n; ++j) {
                        int sum = m % 2 == 0 ? 3 : 0;
                        for (dim x = 0; x < 2 * count; ++x) sum += value(i, x) * value(9 + j, x);
                        ASSERT_EQ(c[static_cast<std::size_t>(i * 5 + j)], static_cast<float>(sum))
                            << to_string(set) << ' ' << m << 'x' << n;
                    }
            }
    }
}

}  // namespace
}  // namespace convgrad::test
