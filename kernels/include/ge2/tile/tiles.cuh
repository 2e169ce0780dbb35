// Tiles that a block walks over, for the stagings in ge2/prim/stage.
#pragma once

namespace ge2 {

// Tiles first, first + step, ... below count.
struct Tiles {
    long long first;
    long long count;
    long long step;
};

// Floats from one row of a staged tile to the next. Rows of a power of two would put the same column
// of all rows into one bank.
constexpr int tile_pitch(int rows, int span) { return rows == 1 ? span : span + 4; }

}  // namespace ge2
