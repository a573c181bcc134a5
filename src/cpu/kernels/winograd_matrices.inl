// The matrices of F(M, 3), M even, for the points 0, ±p₁, …, ±p_{M/2} and infinity, in this order.
// Included inside an anonymous namespace.
//
// Rows of +p and −p differ in the signs of odd columns only, so that a pair of points costs little
// more than one.

/// ±1 for 2; for 4 ±5/8 and ±3/2, whose error is less than half of that of ±1 and ±2 (all products
/// of up to three of them are exact in f32).
template <int M>
inline constexpr double winograd_point[M / 2] = {};
template <>
inline constexpr double winograd_point<2>[1] = {1};
template <>
inline constexpr double winograd_point<4>[2] = {0.625, 1.5};

template <int Columns, int Points>
struct point_matrix {
    static constexpr int columns = Columns, points = Points;
    double of[Points][Columns] = {};
};

/// Coefficient of x^(2j) of the product of all (x² − p²) but that of pair `skip`.
template <int M>
constexpr double even_polynomial(int skip, int j) {
    double c[M / 2 + 2] = {1};
    for (int i = 0, degree = 0; i < M / 2; ++i) {
        if (i == skip) continue;
        const double q = winograd_point<M>[i] * winograd_point<M>[i];
        ++degree;
        for (int d = degree; d > 0; --d) c[d] = c[d - 1] - q * c[d];
        c[0] *= -q;
    }
    return c[j];
}

/// Bᵀ: the polynomial whose zeros are all other points.
template <int M>
constexpr point_matrix<M + 2, M + 2> input_matrix() {
    point_matrix<M + 2, M + 2> b;
    for (int j = 0; j <= M / 2; ++j) {
        b.of[0][2 * j] = even_polynomial<M>(-1, j);
        b.of[M + 1][2 * j + 1] = even_polynomial<M>(-1, j);
    }
    for (int i = 0; i < M / 2; ++i)
        for (int j = 0; j < M / 2; ++j) {
            const double p = winograd_point<M>[i], c = even_polynomial<M>(i, j);
            b.of[1 + 2 * i][2 * j + 2] = b.of[2 + 2 * i][2 * j + 2] = c;
            b.of[1 + 2 * i][2 * j + 1] = p * c;
            b.of[2 + 2 * i][2 * j + 1] = -p * c;
        }
    return b;
}

/// Powers of the points: A (M columns), or G with what Bᵀ leaves to divide by (three columns).
template <int M, int Columns>
constexpr point_matrix<Columns, M + 2> power_matrix(bool divided) {
    point_matrix<Columns, M + 2> a;
    a.of[0][0] = divided ? 1 / even_polynomial<M>(-1, 0) : 1;
    a.of[M + 1][Columns - 1] = 1;
    for (int i = 0; i < M / 2; ++i) {
        const double p = winograd_point<M>[i];
        double rest = 2 * p * p;
        for (int j = 0; j < M / 2; ++j)
            if (j != i) rest *= p * p - winograd_point<M>[j] * winograd_point<M>[j];
        double power = divided ? 1 / rest : 1;
        for (int k = 0; k < Columns; ++k, power *= p) {
            a.of[1 + 2 * i][k] = power;
            a.of[2 + 2 * i][k] = k % 2 == 0 ? power : -power;
        }
    }
    return a;
}

template <int M>
struct matrices {
    static constexpr auto input = input_matrix<M>();
    static constexpr auto filter = power_matrix<M, 3>(true);
    static constexpr auto result = power_matrix<M, M>(false);
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

/// Points G of an axis: 0 and infinity (G = 0), or ±p_G.
template <const auto &E, int G>
[[gnu::always_inline]] inline void evaluate_pair(const V::vec *in, V::vec &low, V::vec &high) {
    if constexpr (G == 0) {
        low = row_sum<E, 0, -1>(in);
        high = row_sum<E, E.points - 1, -1>(in);
    } else {
        constexpr int p = 2 * G - 1;
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
    if constexpr (2 * I + 2 == E.points) {
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
        if constexpr (first != 0)
            out[K] = add_pairs<E, K, 0>(times([] { return first; }, in[0]), even, odd);
        else if constexpr (last != 0)
            out[K] = add_pairs<E, K, 0>(times([] { return last; }, in[E.points - 1]), even, odd);
        else
            out[K] = add_pairs<E, K, 1>(
                times([] { return E.of[1][K]; }, K % 2 == 0 ? even[0] : odd[0]), even, odd);
        combine_columns<E, K + 1>(in, even, odd, out);
    }
}

template <const auto &E>
[[gnu::always_inline]] inline void combine(const V::vec *in, V::vec *out) {
    constexpr int pairs = E.points / 2 - 1;
    V::vec even[pairs], odd[pairs];
#pragma GCC unroll 4
    for (int i = 0; i < pairs; ++i) {
        even[i] = in[1 + 2 * i] + in[2 + 2 * i];
        odd[i] = in[1 + 2 * i] - in[2 + 2 * i];
    }
    combine_columns<E>(in, even, odd, out);
}
