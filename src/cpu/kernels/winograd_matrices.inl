// The matrices of F(m, r), m + r − 1 = P points: 0, ±p₁, …, ±p_{P/2 − 1} and infinity, in this
// order. Included inside an anonymous namespace.

/// ±1 of 4 points; of 6 ±5/8 and ±3/2, whose error is less than half of that of ±1 and ±2 (all
/// products of up to three of them are exact in f32). One point, of one tap and one result, is
/// infinity.
template <int Points>
inline constexpr double winograd_point[2] = {};
template <>
inline constexpr double winograd_point<4>[2] = {1};
template <>
inline constexpr double winograd_point<6>[2] = {0.625, 1.5};

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
        bool yes = p + 1 < Finite && Columns > 1;
        for (int j = 0; j < Columns && yes; ++j)
            yes = of[p + 1][j] == (j % 2 == 0 ? 1 : -1) * of[p][j];
        return yes;
    }
};

/// Finite point `i`.
template <int Points>
constexpr double finite_point(int i) {
    if (i == 0) return 0;
    return (i % 2 == 1 ? 1 : -1) * winograd_point<Points>[(i - 1) / 2];
}

/// Π (point i − point j) over finite points j ≠ i from `first` to `last` − 1.
template <int Points>
constexpr double distances(int i, int first, int last) {
    double product = 1;
    for (int j = first; j < last; ++j)
        if (j != i) product *= finite_point<Points>(i) - finite_point<Points>(j);
    return product;
}

/// Bᵀ of Finite + 1 positions: the polynomial whose zeros are all other points, times what G, which
/// divides by the distances of all points, has divided by too often.
template <int Points, int Finite>
constexpr point_matrix<Finite + 1, Points, Finite> input_matrix() {
    point_matrix<Finite + 1, Points, Finite> b;
    for (int p = 0; p <= Finite; ++p) {
        double c[Finite + 2] = {1};
        for (int j = 0, degree = 0; j < Finite; ++j) {
            if (j == p) continue;
            ++degree;
            for (int d = degree; d > 0; --d) c[d] = c[d - 1] - finite_point<Points>(j) * c[d];
            c[0] *= -finite_point<Points>(j);
        }
        const bool infinite = p == Finite;
        for (int k = 0; k <= Finite; ++k)
            b.of[infinite ? Points - 1 : p][k] =
                infinite ? c[k] : c[k] * distances<Points>(p, Finite, Points - 1);
    }
    return b;
}

template <int Points, int Finite>
inline constexpr auto input_of = input_matrix<Points, Finite>();

/// Powers of the points: A (as many columns as results), or G (as taps), divided by their
/// distances.
template <int Points, int Finite, int Columns>
constexpr point_matrix<Columns, Points, Finite> power_matrix(bool divided) {
    point_matrix<Columns, Points, Finite> a;
    a.of[Points - 1][Columns - 1] = 1;
    for (int p = 0; p < Finite; ++p) {
        double power = divided ? 1 / distances<Points>(p, 0, Points - 1) : 1;
        for (int k = 0; k < Columns; ++k, power *= finite_point<Points>(p)) a.of[p][k] = power;
    }
    return a;
}

/// Filters of R taps; tiles of E results, which may be fewer than the points allow.
template <int Points, int R, int E = Points - R + 1>
struct matrices {
    static constexpr int finite = E + R - 2;
    static constexpr const auto &input = input_of<Points, finite>;
    static constexpr auto filter = power_matrix<Points, Points - 1, R>(true);
    static constexpr auto result = power_matrix<Points, finite, E>(false);
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
    if constexpr (E.points == 1) {
        out[0] = in[0];
    } else {
        V::vec even[pairs + 1], odd[pairs + 1];
        pair_up<E>(in, even, odd);
        combine_columns<E>(in, even, odd, out);
    }
}
