// The matrices of F(M, 3), M even, for the points 0, ±p₁, …, ±p_{M/2} and infinity, in this order.
// Included inside an anonymous namespace.

/// ±1 for 2; for 4 ±5/8 and ±3/2, whose error is less than half of that of ±1 and ±2 (all products
/// of up to three of them are exact in f32).
template <int M>
inline constexpr double winograd_point[M / 2] = {};
template <>
inline constexpr double winograd_point<2>[1] = {1};
template <>
inline constexpr double winograd_point<4>[2] = {0.625, 1.5};

/// Of `Points` points only the first `Finite`, and infinity, are there: an edge of a map has tiles
/// with fewer results, whose points are some of those of a whole tile.
template <int Columns, int Points, int Finite>
struct point_matrix {
    static constexpr int columns = Columns, points = Points, finite = Finite;
    double of[Points][Columns] = {};

    static constexpr bool has(int p) { return p < Finite || p == Points - 1; }
    /// Rows of +p and −p differ in the signs of odd columns only, so that a pair of points costs
    /// little more than one.
    [[nodiscard]] constexpr bool mirrored(int p) const {
        bool yes = p + 1 < Finite;
        for (int j = 0; j < Columns && yes; ++j)
            yes = of[p + 1][j] == (j % 2 == 0 ? 1 : -1) * of[p][j];
        return yes;
    }
};

/// Finite point `i` of F(M, 3).
template <int M>
constexpr double finite_point(int i) {
    if (i == 0) return 0;
    return (i % 2 == 1 ? 1 : -1) * winograd_point<M>[(i - 1) / 2];
}

/// Π (point i − point j) over finite points j ≠ i from `first` to `last` − 1.
template <int M>
constexpr double distances(int i, int first, int last) {
    double product = 1;
    for (int j = first; j < last; ++j)
        if (j != i) product *= finite_point<M>(i) - finite_point<M>(j);
    return product;
}

/// Bᵀ of E results: the polynomial whose zeros are all other points, times what G, which divides by
/// the distances of all points of F(M, 3), has divided by too often.
template <int M, int E>
constexpr point_matrix<E + 2, M + 2, E + 1> input_matrix() {
    point_matrix<E + 2, M + 2, E + 1> b;
    for (int p = 0; p <= E + 1; ++p) {
        double c[E + 3] = {1};
        for (int j = 0, degree = 0; j <= E; ++j) {
            if (j == p) continue;
            ++degree;
            for (int d = degree; d > 0; --d) c[d] = c[d - 1] - finite_point<M>(j) * c[d];
            c[0] *= -finite_point<M>(j);
        }
        const bool infinite = p == E + 1;
        for (int k = 0; k < E + 2; ++k)
            b.of[infinite ? M + 1 : p][k] = infinite ? c[k] : c[k] * distances<M>(p, E + 1, M + 1);
    }
    return b;
}

/// Powers of the points: A (as many columns as results), or G (three), divided by their distances.
template <int M, int E, int Columns>
constexpr point_matrix<Columns, M + 2, E + 1> power_matrix(bool divided) {
    point_matrix<Columns, M + 2, E + 1> a;
    a.of[M + 1][Columns - 1] = 1;
    for (int p = 0; p <= E; ++p) {
        double power = divided ? 1 / distances<M>(p, 0, M + 1) : 1;
        for (int k = 0; k < Columns; ++k, power *= finite_point<M>(p)) a.of[p][k] = power;
    }
    return a;
}

/// Tiles of E ≤ M results.
template <int M, int E = M>
struct matrices {
    static constexpr auto input = input_matrix<M, E>();
    static constexpr auto filter = power_matrix<M, M, 3>(true);
    static constexpr auto result = power_matrix<M, E, E>(false);
};

// --- one axis -----------------------------------------------------------------------------------

/// sum + c · v
template <typename Coefficient>
[[gnu::always_inline]] inline V::vec plus(V::vec sum, Coefficient c, V::vec v) {
    constexpr double k = c();
    if constexpr (k == 0)
        return sum;
    else if constexpr (k == 1)
        return sum + v;
    else
        return V::madd(sum, V::set1(static_cast<float>(k)), v);
}

template <typename Coefficient>
[[gnu::always_inline]] inline V::vec times(Coefficient c, V::vec v) {
    constexpr double k = c();
    if constexpr (k == 1)
        return v;
    else
        return V::set1(static_cast<float>(k)) * v;
}

constexpr bool exact(double v) {
    return static_cast<double>(static_cast<float>(v)) == v;
}

/// What odd columns of row `p` are divided by, so that the rest is exact and begins or ends with 1.
template <const auto &E, int P>
constexpr double odd_scale() {
    for (int from = 1; from < E.columns; from += 2) {
        const double s = E.of[P][from];
        bool good = s != 0;
        for (int j = 1; j < E.columns; j += 2)
            good = good && exact(E.of[P][j] / s) && E.of[P][j] / s * s == E.of[P][j];
        if (good) return s;
    }
    return 1;
}

/// Σ_j E[P][j] / scale · in[j] over columns j ≡ Odd (mod 2), or over all (Odd < 0). The first of
/// them with coefficient 1, if any, starts the sum.
template <const auto &E, int P, int Odd>
constexpr int first_column(double scale) {
    int first = -1;
    for (int j = 0; j < E.columns; ++j) {
        if ((Odd >= 0 && j % 2 != Odd) || E.of[P][j] == 0) continue;
        if (E.of[P][j] / scale == 1) return j;
        if (first < 0) first = j;
    }
    return first;
}

template <const auto &E, int P, int Odd, int J>
[[gnu::always_inline]] inline V::vec add_columns(V::vec sum, const V::vec *in) {
    constexpr double scale = Odd == 1 ? odd_scale<E, P>() : 1;
    constexpr int start = first_column<E, P, Odd>(scale);
    if constexpr (J == E.columns) {
        return sum;
    } else {
        constexpr bool mine = J != start && (Odd < 0 || J % 2 == Odd);
        if constexpr (mine)
            sum = plus(
                sum, [] { return E.of[P][J] / scale; }, in[J]);
        return add_columns<E, P, Odd, J + 1>(sum, in);
    }
}

template <const auto &E, int P, int Odd>
[[gnu::always_inline]] inline V::vec row_sum(const V::vec *in) {
    constexpr double scale = Odd == 1 ? odd_scale<E, P>() : 1;
    constexpr int start = first_column<E, P, Odd>(scale);
    return add_columns<E, P, Odd, 0>(times([] { return E.of[P][start] / scale; }, in[start]), in);
}

/// Points G of an axis: 0 and infinity (G = 0), or ±p_G, of which one or both may be missing.
template <const auto &E, int G>
[[gnu::always_inline]] inline void evaluate_pair(const V::vec *in, V::vec &low, V::vec &high) {
    constexpr int p = 2 * G - 1;
    if constexpr (G == 0) {
        low = row_sum<E, 0, -1>(in);
        high = row_sum<E, E.points - 1, -1>(in);
    } else if constexpr (!E.mirrored(p)) {
        if constexpr (E.has(p)) low = row_sum<E, p, -1>(in);
        if constexpr (E.has(p + 1)) high = row_sum<E, p + 1, -1>(in);
    } else {
        constexpr double scale = odd_scale<E, p>();
        const V::vec even = row_sum<E, p, 0>(in), odd = row_sum<E, p, 1>(in);
        low = plus(
            even, [] { return scale; }, odd);
        if constexpr (scale == 1)
            high = even - odd;
        else
            high = plus(
                even, [] { return -scale; }, odd);
    }
}

/// Where the points of pair G are.
template <int Points, int G>
inline constexpr int pair_low = G == 0 ? 0 : 2 * G - 1;
template <int Points, int G>
inline constexpr int pair_high = G == 0 ? Points - 1 : 2 * G;

template <const auto &E, int G = 0>
[[gnu::always_inline]] inline void evaluate(const V::vec *in, V::vec *out) {
    if constexpr (2 * G < E.points) {
        evaluate_pair<E, G>(in, out[pair_low<E.points, G>], out[pair_high<E.points, G>]);
        evaluate<E, G + 1>(in, out);
    }
}

/// out[column] = Σ_points E[point][column] · in[point]
template <const auto &E, int K, int I>
[[gnu::always_inline]] inline V::vec add_pairs(V::vec sum, const V::vec *even, const V::vec *odd) {
    if constexpr (2 * I + 1 >= E.finite) {
        return sum;
    } else {
        sum = plus(
            sum, [] { return E.of[1 + 2 * I][K]; }, K % 2 == 0 ? even[I] : odd[I]);
        return add_pairs<E, K, I + 1>(sum, even, odd);
    }
}

template <const auto &E, int K = 0>
[[gnu::always_inline]] inline void combine_columns(
    const V::vec *in, const V::vec *even, const V::vec *odd, V::vec *out) {
    if constexpr (K < E.columns) {
        constexpr double first = E.of[0][K], last = E.of[E.points - 1][K];
        if constexpr (first != 0 && last != 0)
            out[K] = add_pairs<E, K, 0>(
                plus(
                    times([] { return first; }, in[0]), [] { return last; }, in[E.points - 1]),
                even, odd);
        else if constexpr (first != 0)
            out[K] = add_pairs<E, K, 0>(times([] { return first; }, in[0]), even, odd);
        else if constexpr (last != 0)
            out[K] = add_pairs<E, K, 0>(times([] { return last; }, in[E.points - 1]), even, odd);
        else
            out[K] = add_pairs<E, K, 1>(
                times([] { return E.of[1][K]; }, K % 2 == 0 ? even[0] : odd[0]), even, odd);
        combine_columns<E, K + 1>(in, even, odd, out);
    }
}

template <const auto &E, int I = 0>
[[gnu::always_inline]] inline void pair_up(const V::vec *in, V::vec *even, V::vec *odd) {
    if constexpr (2 * I + 1 < E.finite) {
        constexpr bool both = E.has(2 * I + 2);
        if constexpr (both) {
            even[I] = in[1 + 2 * I] + in[2 + 2 * I];
            odd[I] = in[1 + 2 * I] - in[2 + 2 * I];
        } else {
            even[I] = odd[I] = in[1 + 2 * I];
        }
        pair_up<E, I + 1>(in, even, odd);
    }
}

template <const auto &E>
[[gnu::always_inline]] inline void combine(const V::vec *in, V::vec *out) {
    constexpr int pairs = E.finite / 2;
    V::vec even[pairs], odd[pairs];
    pair_up<E>(in, even, odd);
    combine_columns<E>(in, even, odd, out);
}
