// Transposing elements as they are, 2 or 4 bytes. Included like pack_vector.inl.

/// Columns of a whole block of `lanes` rows: a vector of each.
template <typename T>
constexpr dim block_columns = V::lanes * 4 / static_cast<dim>(sizeof(T));

/// Two columns of 2 bytes go as one of 4.
template <typename T>
void transpose_whole(const transpose_args &p, dim i, dim j) {
    constexpr dim size = sizeof(T);
    const char *in = p.in + i * p.in_pitch + j * size;
    typename V::vec block[V::lanes];
#pragma GCC unroll 16
    for (int k = 0; k < V::lanes; ++k) block[k] = V::load(in + k * p.in_pitch);
    V::transpose(block);
    char *out = p.out + j * p.out_pitch + i * size;
#pragma GCC unroll 16
    for (int k = 0; k < V::lanes; ++k) {
        if constexpr (size == 4)
            V::store(out + k * p.out_pitch, block[k]);
        else
            V::store_halves(out + 2 * k * p.out_pitch, out + (2 * k + 1) * p.out_pitch, block[k]);
    }
}

/// Matrices with fewer rows or columns than a whole block.
template <typename T>
void transpose_parts(const transpose_args &p) {
    constexpr dim size = sizeof(T);
    for (dim i = 0; i < p.rows; i += V::lanes)
        for (dim j = 0; j < p.columns; j += V::lanes) {
            const dim height = smaller(V::lanes, p.rows - i),
                      width = smaller(V::lanes, p.columns - j);
            typename V::vec block[V::lanes];
#pragma GCC unroll 16
            for (int k = 0; k < V::lanes; ++k)
                block[k] = k < height ? V::template load_bits<T>(
                               p.in + (i + k) * p.in_pitch + j * size, width)
                                      : V::zero();
            V::transpose(block);
            for (dim k = 0; k < width; ++k)
                V::template store_bits<T>(
                    p.out + (j + k) * p.out_pitch + i * size, block[k], height);
        }
}

/// A few rows whose elements come to lie side by side without a gap: shuffles that compilers find.
template <typename T, int Rows>
void interleave(const char *__restrict in, dim in_pitch, char *__restrict out, dim columns) {
    constexpr dim size = sizeof(T);
    for (dim j = 0; j < columns; ++j)
#pragma GCC unroll 4
        for (int k = 0; k < Rows; ++k)
            __builtin_memcpy(out + (j * Rows + k) * size, in + k * in_pitch + j * size, size);
}

/// Elements [i, rows) × [j, columns), one by one.
template <typename T>
void transpose_few(const transpose_args &p, dim i, dim j, dim rows, dim columns) {
    constexpr dim size = sizeof(T);
    for (; j < columns; ++j)
        for (dim k = i; k < rows; ++k)
            __builtin_memcpy(
                p.out + j * p.out_pitch + k * size, p.in + k * p.in_pitch + j * size, size);
}

/// Whole blocks; a rest of more than a few rows or columns is a block that overlaps the last one.
template <typename T>
void transpose_as(const transpose_args &p) {
    if (p.rows <= 4 && p.out_pitch == p.rows * static_cast<dim>(sizeof(T))) {
        if (p.rows == 2) return interleave<T, 2>(p.in, p.in_pitch, p.out, p.columns);
        if (p.rows == 3) return interleave<T, 3>(p.in, p.in_pitch, p.out, p.columns);
        if (p.rows == 4) return interleave<T, 4>(p.in, p.in_pitch, p.out, p.columns);
    }
    constexpr dim height = V::lanes, width = block_columns<T>, few = V::lanes / 4;
    if (p.rows < height || p.columns < width) return transpose_parts<T>(p);
    const dim rows = p.rows % height <= few ? p.rows / height * height : p.rows;
    const dim columns = p.columns % width <= few ? p.columns / width * width : p.columns;
    for (dim i = 0; i < rows; i += height)
        for (dim j = 0; j < columns; j += width)
            transpose_whole<T>(p, smaller(i, rows - height), smaller(j, columns - width));
    transpose_few<T>(p, 0, columns, p.rows, p.columns);
    transpose_few<T>(p, rows, 0, p.rows, columns);
}

void transpose_elements(const transpose_args &p) {
    if (p.size == 4)
        transpose_as<std::uint32_t>(p);
    else
        transpose_as<std::uint16_t>(p);
}
