// instructions.cuh in plain C++.
#pragma once

namespace convgrad::cuda {

using emulator::together;

inline unsigned char *dynamic_shared() {
    return emulator::shared_memory();
}
/// Shared memory lies within two gigabytes of where dynamic_shared() is, arrays of kernels too.
inline unsigned shared_address(const void *p) {
    return static_cast<unsigned>(static_cast<const unsigned char *>(p) - emulator::shared_memory());
}
inline unsigned char *shared_pointer(unsigned at) {
    return emulator::shared_memory() + static_cast<int>(at);
}

inline unsigned opaque(unsigned v) {
    return v;
}

inline void arrive(const emulator::pending_copy &c) {
    if (c.there)
        std::memcpy(c.to, c.from, static_cast<std::size_t>(c.bytes));
    else
        std::memset(c.to, 0, static_cast<std::size_t>(c.bytes));
}
inline void send(const emulator::pending_copy &copy) {
    if (emulator::copies_are_late())
        emulator::here().groups.back().push_back(copy);
    else
        arrive(copy);
}
inline void check_aligned(unsigned to, const void *from, int bytes) {
    const auto unit = static_cast<unsigned>(bytes);
    if (to % unit == 0 && reinterpret_cast<std::uintptr_t>(from) % unit == 0) return;
    std::fprintf(stderr, "emulator: a copy of %d bytes that is not aligned\n", bytes);
    std::abort();
}
template <int Bytes>
void copy_async(unsigned to, const void *from, bool there = true) {
    check_aligned(to, there ? from : nullptr, Bytes);
    send({shared_pointer(to), from, Bytes, there});
}
inline void copy_async_part(unsigned to, const void *from, int there) {
    check_aligned(to, from, 16);
    send({shared_pointer(to), from, there, true});
    send({shared_pointer(to) + there, nullptr, 16 - there, false});
}
inline void copy_async_if(unsigned to, const void *from, unsigned there, unsigned taken = 1) {
    if (taken != 0) copy_async<16>(to, from, there != 0);
}
inline void commit_copies() {
    emulator::here().groups.emplace_back();
}
template <int Pending>
void await_copies() {
    auto &groups = emulator::here().groups;
    while (groups.size() > Pending + 1) {
        for (const emulator::pending_copy &c : groups.front()) arrive(c);
        groups.erase(groups.begin());
    }
}
inline void await_all_copies() {
    await_copies<0>();
    for (const emulator::pending_copy &c : emulator::here().groups.back()) arrive(c);
    emulator::here().groups.back().clear();
}

/// One instruction on matrices: where a lane's row is, and its words.
struct matrix_request {
    unsigned at;
    unsigned *words;
};
inline unsigned short *matrix_row(void **all, int matrix, int row) {
    const unsigned at = static_cast<matrix_request *>(all[matrix * 8 + row])->at;
    if (at % 16 != 0) {
        std::fprintf(stderr, "emulator: a row of a matrix that is not aligned\n");
        std::abort();
    }
    return reinterpret_cast<unsigned short *>(shared_pointer(at));
}
template <int Count, bool Turned, bool Stores>
void move_matrices(void **all, int lanes) {
    for (int lane = 0; lane < lanes; ++lane)
        for (int m = 0; m < Count; ++m)
            for (int half = 0; half < 2; ++half) {
                const int a = lane / 4, b = lane % 4 * 2 + half;
                unsigned short *const there =
                    Turned ? matrix_row(all, m, b) + a : matrix_row(all, m, a) + b;
                unsigned &word = static_cast<matrix_request *>(all[lane])->words[m];
                if (Stores)
                    *there = static_cast<unsigned short>(word >> half * 16);
                else
                    word = (word & ~(0xffffU << half * 16))
                           | static_cast<unsigned>(*there) << half * 16;
            }
}
inline void load_matrices(unsigned at, unsigned (&r)[4]) {
    matrix_request mine{at, r};
    together("ldmatrix.x4", &mine, &move_matrices<4, false, false>);
}
inline void load_matrices_turned(unsigned at, unsigned (&r)[4]) {
    matrix_request mine{at, r};
    together("ldmatrix.x4.trans", &mine, &move_matrices<4, true, false>);
}
template <bool Turned>
void load_two_matrices(unsigned at, unsigned (&r)[2]) {
    matrix_request mine{at, r};
    together(Turned ? "ldmatrix.x2.trans" : "ldmatrix.x2", &mine, &move_matrices<2, Turned, false>);
}
inline void store_matrices(unsigned at, const unsigned (&r)[4]) {
    matrix_request mine{at, const_cast<unsigned *>(r)};
    together("stmatrix.x4", &mine, &move_matrices<4, false, true>);
}
inline void store_two_matrices(unsigned at, const unsigned (&r)[2]) {
    matrix_request mine{at, const_cast<unsigned *>(r)};
    together("stmatrix.x2", &mine, &move_matrices<2, false, true>);
}
inline void store_matrices_turned(unsigned at, const unsigned (&r)[4]) {
    matrix_request mine{at, const_cast<unsigned *>(r)};
    together("stmatrix.x4.trans", &mine, &move_matrices<4, true, true>);
}

inline unsigned load_word(unsigned at) {
    unsigned v;
    std::memcpy(&v, shared_pointer(at), sizeof v);
    return v;
}
inline void store_words(unsigned to, const unsigned (&v)[4]) {
    std::memcpy(shared_pointer(to), v, sizeof v);
}

/// A product of a warp: a lane's words of the operands, and its sums.
struct product_request {
    float *c;
    const unsigned *a, *b;
};
/// Value `i` of a lane's words: of 16-bit types two to a word.
template <typename T>
float value_of(const unsigned *words, int i) {
    if constexpr (sizeof(T) == 4) {
        return __uint_as_float(words[i] & 0xffffe000U);  // the unit drops the rest
    } else {
        T v;
        std::memcpy(&v, reinterpret_cast<const unsigned char *>(words) + i * 2, sizeof v);
        return to_f32(v);
    }
}
/// `Terms` of 16 rows by 8 columns, as the instruction shares them out over lanes.
template <typename T, int Terms>
void multiply_all(void **all, int) {
    const auto lane = [&](int l) { return static_cast<product_request *>(all[l]); };
    constexpr int step = sizeof(T) == 4 ? 1 : 2;  // values of a word
    const auto a = [&](int row, int k) {
        // Words go over rows first, then over terms.
        const int word = row / 8 + k / (4 * step) * 2;
        return value_of<T>(lane(row % 8 * 4 + k / step % 4)->a, word * step + k % step);
    };
    const auto b = [&](int k, int column) {
        return value_of<T>(lane(column * 4 + k / step % 4)->b, k / (4 * step) * step + k % step);
    };
    for (int row = 0; row < 16; ++row)
        for (int column = 0; column < 8; ++column) {
            float &sum = lane(row % 8 * 4 + column / 2)->c[row / 8 * 2 + column % 2];
            double total = 0;
            for (int k = 0; k < Terms; ++k)
                total += static_cast<double>(a(row, k)) * static_cast<double>(b(k, column));
            sum = static_cast<float>(total + static_cast<double>(sum));
        }
}
template <typename T>
void multiply(float (&c)[4], const unsigned (&a)[4], const unsigned *b) {
    product_request mine{c, a, b};
    together("mma.k16", &mine, &multiply_all < T, sizeof(T) == 4 ? 8 : 16 >);
}
template <typename T>
void multiply_half(float (&c)[4], const unsigned (&a)[2], unsigned b) {
    product_request mine{c, a, &b};
    together("mma.k8", &mine, &multiply_all<T, 8>);
}

template <typename T>
void mark_special(unsigned &mark, unsigned pair) {
    constexpr unsigned exponent = std::is_same_v<T, bf16> ? 0x7f80 : 0x7c00;
    for (int half = 0; half < 32; half += 16)
        if ((pair >> half & exponent) == exponent) mark |= 0x7fffU << half;
}
inline bool is_marked(unsigned mark) {
    return (mark & 0x7fff7fffU) != 0;
}

}  // namespace convgrad::cuda
