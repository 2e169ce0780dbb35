// Matrices of a matrix product as the kernels get them: strided, with up to three batch axes.
#pragma once

#include <ge2/ptx/ldst.cuh>
#include <ge2/types.cuh>

namespace ge2 {

// Strides are in elements; 0 broadcasts. A is indexed (m, k), B (n, k), all others (m, n).
struct GemmOperand {
    const void* pointer;
    long long row, column;
    long long batch[3];
};
static_assert(sizeof(GemmOperand) == 48, "GemmOperand");

// The offset, in elements, of an operand's matrix number index, counted row-major over extents.
inline long long batch_offset(const GemmOperand& operand, const long long (&extents)[3],
                              unsigned index) {
    const unsigned inner = static_cast<unsigned>(extents[2]);
    const unsigned middle = static_cast<unsigned>(extents[1]);
    const unsigned outer = index / inner;
    return index % inner * operand.batch[2] + outer % middle * operand.batch[1] +
           outer / middle * operand.batch[0];
}

template <typename T>
inline const T* matrix_of(const GemmOperand& operand, const long long (&extents)[3],
                          unsigned index) {
    return static_cast<const T*>(operand.pointer) + batch_offset(operand, extents, index);
}

inline int lesser(int a, int b) { return a < b ? a : b; }

// How an epilogue input varies over the output; UNIT: neighbours in a row are neighbours in memory.
enum class Spread { SCALAR, PER_ROW, PER_COLUMN, PER_COLUMN_UNIT, FULL, FULL_UNIT };

inline float read_only(const float* p) { return __ldg(p); }
inline double read_only(const double* p) { return __ldg(p); }
inline int read_only(const int* p) { return __ldg(p); }
inline long long read_only(const long long* p) { return __ldg(p); }
inline f16 read_only(const f16* p) { return f16{__ldg(&p->bits)}; }
inline bf16 read_only(const bf16* p) { return bf16{__ldg(&p->bits)}; }
inline f8e4m3 read_only(const f8e4m3* p) { return f8e4m3{__ldg(&p->bits)}; }
inline f8e5m2 read_only(const f8e5m2* p) { return f8e5m2{__ldg(&p->bits)}; }
inline b8 read_only(const b8* p) { return b8{__ldg(&p->bits)}; }
inline signed char read_only(const signed char* p) { return __ldg(p); }
inline unsigned char read_only(const unsigned char* p) { return __ldg(p); }

template <typename T>
inline Vec<T, 2> read_only_pair(const T* p) {
    if constexpr (sizeof(T) == 2) {
        const unsigned both = __ldg(reinterpret_cast<const unsigned*>(p));
        return {T{static_cast<unsigned short>(both)}, T{static_cast<unsigned short>(both >> 16)}};
    } else {
        return {read_only(p), read_only(p + 1)};
    }
}

// One input of an epilogue expression besides the accumulator.
template <typename T, Spread SPREAD>
struct EpilogueInput {
    const T* matrix;
    long long row, column;

    EpilogueInput(const GemmOperand& operand, const long long (&extents)[3], unsigned index)
        : matrix(matrix_of<T>(operand, extents, index)),
          row(operand.row),
          column(operand.column) {}

    // The same where all batch axes have merged into the last.
    EpilogueInput(const GemmOperand& operand, int index)
        : matrix(static_cast<const T*>(operand.pointer) + index * operand.batch[2]),
          row(operand.row),
          column(operand.column) {}

    compute_t<T> at(int r, int c) const {
        const T* p = matrix;
        if constexpr (ROWS) p += r * row;
        if constexpr (COLUMNS) p += UNIT ? c : c * column;
        // A full input may be the output itself, updated in place: never by the read-only path.
        if constexpr (ROWS && COLUMNS) return to_compute(*p);
        return to_compute(read_only(p));
    }

    // The same for a column that may lie behind the last one, where it is zero. A predicate costs
    // fewer registers than an address of its own for each clamped column.
    compute_t<T> until(int r, int c, int last_column) const {
        if constexpr (!COLUMNS) return at(r, c);
        return c <= last_column ? at(r, c) : compute_t<T>(0);
    }

    // Two neighbouring columns.
    Vec<compute_t<T>, 2> both(int r, int c, int last_column) const {
        if constexpr (!COLUMNS) {
            const compute_t<T> value = at(r, c);
            return {value, value};
        }
        return {until(r, c, last_column), until(r, c + 1, last_column)};
    }

    // The same in one access, where pairs are aligned and no row ends inside one.
    Vec<compute_t<T>, 2> pair(int r, int c, int last_column) const {
        if (c > last_column) return {compute_t<T>(0), compute_t<T>(0)};
        const T* p = matrix + c;
        if constexpr (ROWS) p += r * row;
        const Vec<T, 2> v = ROWS ? *reinterpret_cast<const Vec<T, 2>*>(p) : read_only_pair(p);
        return {to_compute(v[0]), to_compute(v[1])};
    }

    // Brings a tile of rows by columns closer; lanes share the work.
    void prefetch(int r, int c, int rows, int columns, int last_row, int last_column,
                  int lane) const {
        constexpr int LINE = 128 / sizeof(T);
        if constexpr (UNIT && ROWS) {
            const int lines = columns / LINE;
            for (int i = lane; i < rows * lines; i += 32) {
                const int at_row = r + i / lines, at_column = c + i % lines * LINE;
                if (at_row <= last_row && at_column <= last_column) {
                    ptx::prefetch_l2(matrix + at_row * row + at_column);
                }
            }
        } else if constexpr (UNIT) {
            const int at_column = c + lane * LINE;
            if (lane < columns / LINE && at_column <= last_column) {
                ptx::prefetch_l1(matrix + at_column);
            }
        }
    }

private:
    static constexpr bool UNIT =
        SPREAD == Spread::PER_COLUMN_UNIT || SPREAD == Spread::FULL_UNIT;
    static constexpr bool ROWS = SPREAD == Spread::PER_ROW || SPREAD == Spread::FULL ||
                                 SPREAD == Spread::FULL_UNIT;
    static constexpr bool COLUMNS = SPREAD != Spread::SCALAR && SPREAD != Spread::PER_ROW;
};

// Output tiles in an order that keeps the operands of neighbours in the L2 cache: eight rows of
// tiles at a time, column by column.
struct TilePosition {
    int row, column;
};

inline TilePosition tile_position(unsigned index, unsigned rows, unsigned columns) {
    // A block's first tile is on its way to the first load: it mostly does without divisions.
    const unsigned group = index < 8 * columns ? 0 : index / (8 * columns);
    const unsigned within = index - group * 8 * columns;
    const unsigned height = rows - group * 8 < 8 ? rows - group * 8 : 8;
    if (height == 8) {
        return {static_cast<int>(group * 8 + within % 8), static_cast<int>(within / 8)};
    }
    return {static_cast<int>(group * 8 + within % height), static_cast<int>(within / height)};
}

}  // namespace ge2
