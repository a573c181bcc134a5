// Transposing elements as they are, 2 or 4 bytes. Included like pack_vector.inl.

template <typename T>
void transpose_as(const transpose_args &p) {
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

void transpose_elements(const transpose_args &p) {
    if (p.size == 4)
        transpose_as<std::uint32_t>(p);
    else
        transpose_as<std::uint16_t>(p);
}
