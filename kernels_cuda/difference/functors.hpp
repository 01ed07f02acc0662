// Rebuilding a matrix from the one before it and a difference (ESDG section 3.2), by ranks.
//
// A change is looked up once in the previous matrix; from then on only positions count. An added
// entry stands before the previous entry at `added_at`, a removed one is the entry at `removed_at`.
// A kept entry i moves to i - (removed before it) + (added before it), an added entry j to
// added_at[j] - (removed before that) + j: two ranks in two sorted lists, no prefix sum, no
// scratch that grows with the matrix, and every place is written by exactly one index.
#pragma once

#include <cstdint>

#include "common/for_each.hpp"
#include "common/host_device.hpp"
#include "common/search.hpp"

namespace dgbench {

// Indices as they were sent, int64 or int32.
struct Ids {
  const void* data;
  bool wide;

  DGB_HD Ids from(int64_t i) const {
    return {static_cast<const char*>(data) + i * (wide ? 8 : 4), wide};
  }
  DGB_HD int64_t operator[](int64_t i) const {
    return wide ? static_cast<const int64_t*>(data)[i] : static_cast<const int32_t*>(data)[i];
  }
};

// Sorted (row, column) pairs.
struct Pairs {
  Ids rows;
  Ids columns;
  int64_t count;
};

// First position in sorted[0, n) that is not less than `key`; n when there is none.
template <class List, class T>
DGB_HD int64_t lower_bound(const List& sorted, int64_t n, T key) {
  int64_t low = 0;
  int64_t high = n;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (sorted[middle] < key) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Looks one change up in the previous matrix: index k < removed.count is a removed entry, the
// others are added ones. Reports any bad change into found[0] (a removed entry that is not there),
// found[1] (an added entry that is there already) and found[2] (a pair outside the matrix, or not
// above the pair before it); places start at -1. A bad change still gets a valid position.
struct LocateChange {
  const int64_t* indptr;   // int64[rows + 1], previous matrix
  const int32_t* indices;  // int32[nnz], strictly ascending in a row
  int64_t rows;
  int64_t num_cols;
  Pairs removed;
  Pairs added;
  int32_t* removed_at;  // int32[removed.count]
  int32_t* added_at;    // int32[added.count]
  int64_t* found;       // int64[3]

  DGB_HD void operator()(int64_t index) const {
    const bool gone = index < removed.count;
    const Pairs& list = gone ? removed : added;
    const int64_t k = gone ? index : index - removed.count;
    const int64_t row = list.rows[k];
    const int64_t column = list.columns[k];
    int32_t* place = (gone ? removed_at : added_at) + k;
    if (row < 0 || row >= rows || column < 0 || column >= num_cols) {
      report(found + 2, k);
      *place = 0;
      return;
    }
    if (k > 0) {
      const int64_t before = list.rows[k - 1];
      if (before > row || (before == row && list.columns[k - 1] >= column)) report(found + 2, k);
    }
    const int64_t begin = indptr[row];
    const int64_t length = indptr[row + 1] - begin;
    const int64_t rank = lower_bound(indices + begin, length, static_cast<int32_t>(column));
    const bool held = rank < length && indices[begin + rank] == column;
    if (held != gone) report(found + (gone ? 0 : 1), k);
    *place = static_cast<int32_t>(begin + rank);
  }
};

struct Rebuild {
  const int64_t* indptr;   // int64[rows + 1], previous matrix; null: it is empty
  const int32_t* indices;  // int32[nnz]
  int64_t rows;
  int64_t nnz;
  const int32_t* removed_at;  // int32[removed], ascending
  int64_t removed;
  const int32_t* added_at;  // int32[added.count], ascending; not read if indptr is null
  Pairs added;
  int64_t* out_indptr;   // int64[rows + 1]
  int32_t* out_indices;  // int32[out_nnz]
  int64_t out_nnz;

  // The guard keeps a difference that does not belong to the matrix inside the arrays.
  DGB_HD void put(int64_t place, int64_t column) const {
    if (place >= 0 && place < out_nnz) out_indices[place] = static_cast<int32_t>(column);
  }

  // Added entry j, given the removed ones in [gone_base, gone_base + gone_count), `gone` at the
  // first, that can stand before it.
  DGB_HD void put_added(int64_t j, const int32_t* gone, int64_t gone_count,
                        int64_t gone_base) const {
    const int32_t at = added_at[j];
    put(at - (gone_base + lower_bound(gone, gone_count, at)) + j, added.columns[j]);
  }

  // Entry i of the previous matrix, in its column, given the changes that can stand before or at it,
  // as above.
  DGB_HD void put_kept(int64_t i, int32_t column, const int32_t* gone, int64_t gone_count,
                       int64_t gone_base, const int32_t* come, int64_t come_count,
                       int64_t come_base) const {
    const auto at = static_cast<int32_t>(i);
    const int64_t before = lower_bound(gone, gone_count, at);
    if (before < gone_count && gone[before] == at) return;
    const int64_t inserted = upper_bound(come, come_count, at);
    put(i - (gone_base + before) + (come_base + inserted), column);
  }

  // Where a row of the previous matrix begins.
  DGB_HD int64_t begin_of(int64_t row) const { return indptr == nullptr ? 0 : indptr[row]; }

  // The offset of a row, `old` in the previous matrix, given the removed entries and the rows of
  // the added ones that can stand before it.
  template <class Rows>
  DGB_HD void put_offset(int64_t row, int64_t old, const int32_t* gone, int64_t gone_count,
                         int64_t gone_base, const Rows& come, int64_t come_count,
                         int64_t come_base) const {
    const int64_t before = lower_bound(gone, gone_count, static_cast<int32_t>(old));
    const int64_t inserted = lower_bound(come, come_count, row);
    out_indptr[row] = old - (gone_base + before) + (come_base + inserted);
  }
};

}  // namespace dgbench
