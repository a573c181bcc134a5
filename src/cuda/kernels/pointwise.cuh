// Layers of one tap between planes, as the copy engine walks through them: in boxes of neighbouring
// positions of an image by channels, rows of 128 bytes along positions. What a box holds beside its
// plane is zero.
#pragma once

#include "device.cuh"
#include "pointwise_args.hpp"

namespace convgrad::cuda {
inline namespace code {  // named: nvcc makes names of unnamed ones from the folder

/// Positions by channels of a data pass.
template <typename T>
struct pointwise_tile {
    static constexpr int box = pointwise_box(sizeof(T));
    int row, column, first_column, first_box;
    static constexpr int group = 0, number = 0;
    const plane_boxes &boxes;

    /// By its row and column in tiles.
    __device__ pointwise_tile(
        const pointwise_args &q, int row_of_tiles, int column_of_tiles, int rows, int columns)
        : row(row_of_tiles), column(column_of_tiles), first_column(column * columns),
          first_box(row * (rows / box)), boxes(q.boxes) {}
    /// By its number.
    static __device__ pointwise_tile of(
        const pointwise_args &q, unsigned tile, int rows, int columns) {
        const unsigned across = static_cast<unsigned>(q.bulk.data.tiles_n);
        return {q, static_cast<int>(tile / across), static_cast<int>(tile % across), rows, columns};
    }
    /// Of a row: which position it is, through all images; -1 beside a plane.
    [[nodiscard]] __device__ int position(int of_row) const {
        const int number_of_box = first_box + of_row / box, image = number_of_box / boxes.of_image,
                  x = number_of_box % boxes.of_image * box + of_row % box;
        return number_of_box < boxes.all && x < boxes.positions ? image * boxes.positions + x : -1;
    }
    /// Where it starts in the output; -1: nowhere.
    [[nodiscard]] __device__ wide output(const pointwise_args &q, int of_row) const {
        const int at = position(of_row);
        return at < 0 ? -1
                      : at / boxes.positions * q.bulk.data.end.out_strides.n
                            + at % boxes.positions * boxes.step;
    }
};

/// Input channels, in lines of 64, by output channels of a part of a weights gradient.
template <typename T>
struct pointwise_weights_tile {
    static constexpr int box = pointwise_box(sizeof(T));
    int first_line, lines, first_out;
    static constexpr int group = 0;
    wide part, first, last;  // positions
    int first_box, steps;

    __device__ pointwise_weights_tile(
        const pointwise_weights_args &q, unsigned tile, int rows, int columns) {
        const weights_args &p = q.bulk.weights;
        const auto take = [&](wide of) {
            const unsigned length = static_cast<unsigned>(of), mine = tile % length;
            tile /= length;
            return static_cast<int>(mine);
        };
        first_line = take(p.tiles_n) * rows;
        lines = min(rows, q.bulk.lines - first_line);
        first_out = take(p.tiles_m) * columns;
        part = tile;
        first_box = static_cast<int>(part) * q.part_boxes;
        steps = max(0, min(q.part_boxes, q.boxes.all - first_box));
        const auto begin = [&](int number) {
            return static_cast<wide>(number / q.boxes.of_image) * q.boxes.positions
                   + number % q.boxes.of_image * box;
        };
        first = begin(first_box);
        last = begin(first_box + steps);
    }
};

}  // namespace code
}  // namespace convgrad::cuda
