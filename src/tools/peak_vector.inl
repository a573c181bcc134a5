// The loops over a vector type `vec` with `lanes` floats, `constant(float)`, `madd(acc, a, b)` and
// `join(acc, address)`, which reads one vector. Included into an anonymous namespace.

/// The compiler knows no longer what `v` is, only that somebody needs it.
inline vec hidden(vec v) {
    __asm__ volatile("" : "+m"(v));
    return v;
}

/// Enough chains for a latency of 4 to 5 cycles on two units; with 16 registers there is room for
/// 12 and the two factors.
constexpr int chains = 12;
constexpr int steps = 32;
constexpr double flops_per_round = 2.0 * lanes * chains * steps;

void run_fma(dim rounds) {
    const vec half = constant(0.5F);
    vec acc[chains];
    // The compiler must not see that the chains are all alike.
    for (vec &a : acc) a = hidden(half);
    for (dim i = 0; i < rounds * steps; ++i) {
#pragma GCC unroll 12
        for (vec &a : acc) a = madd(half, a, half);  // tends to 1: no overflow, no subnormals
    }
    for (vec &a : acc) static_cast<void>(hidden(a));
}

void run_read(const void *data, dim bytes) {
    constexpr dim step = static_cast<dim>(sizeof(vec));
    const char *at = static_cast<const char *>(data);
    vec acc[8];
    for (vec &a : acc) a = constant(0);
    for (const char *end = at + bytes; at < end; at += 8 * step) {
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) acc[j] = join(acc[j], at + j * step);
    }
    for (vec &a : acc) static_cast<void>(hidden(a));
}
