// Equal shares of a topology's rows and entries: the tiles of narrow products.
//
// Rows and entries are numbered together, an entry before the end of its row (the path of a merge of
// both). A tile has kPathTile of these items; where it begins is the number of rows that ended before.
#pragma once

#include <cstdint>

#include "common/host_device.hpp"

namespace dgbench {

constexpr int kPathItems = 7;  // of a thread; odd: then threads meet banks of their own
constexpr int kPathThreads = 256;
constexpr int kPathTile = kPathItems * kPathThreads;
constexpr int kNarrow = 16;     // columns of a row that tiles can be used for, at most
constexpr int kLineFloats = 8;  // and up to which they are, without being asked for

DGB_HD int64_t tiles_of(int64_t rows, int64_t entries) {
  return (rows + entries + kPathTile - 1) / kPathTile;
}

// first_row[t] = rows that end before tile t begins; for the number of tiles, all of them.
struct ListTiles {
  const int64_t* indptr;  // int64[rows + 1]
  int64_t rows;
  int32_t* first_row;  // int32[tiles + 1]

  DGB_HD void operator()(int64_t tile) const {
    int64_t low = 0, high = rows;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (indptr[middle + 1] + middle < tile * kPathTile) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    first_row[tile] = static_cast<int32_t>(low);
  }
};

}  // namespace dgbench
