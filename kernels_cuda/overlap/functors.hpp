// Splitting S sorted snapshots into what all of them hold and what is left to each (PiPAD 4.2).
//
// One index per row: the S sorted rows are merged once to count the shared entries and, after the
// caller's prefix sum, once more to write them. The exclusive offsets need no sum of their own:
// exclusive_indptr_i[row] = indptr_i[row] - over_indptr[row], because every shared entry leaves
// each snapshot exactly once.
#pragma once

#include <cstdint>

#include "common/host_device.hpp"

namespace dgbench {

constexpr int kMaxSnapshots = 32;

struct SnapshotRows {
  const int64_t* indptr[kMaxSnapshots];   // int64[rows + 1] each
  const int32_t* indices[kMaxSnapshots];  // strictly ascending inside a row
  int count;
};

// Visits one row: shared(position[]) for entries of all snapshots, single(i, position) for the
// others; both in ascending column order.
template <class Shared, class Single>
DGB_HD void split_row_by_entry(const SnapshotRows& rows, int64_t row, Shared&& shared,
                               Single&& single) {
  int64_t at[kMaxSnapshots];
  int64_t end[kMaxSnapshots];
  bool open = true;
  for (int i = 0; i < rows.count; ++i) {
    at[i] = rows.indptr[i][row];
    end[i] = rows.indptr[i][row + 1];
    open = open && at[i] < end[i];
  }
  while (open) {
    int32_t high = rows.indices[0][at[0]];
    bool equal = true;
    for (int i = 1; i < rows.count; ++i) {
      const int32_t head = rows.indices[i][at[i]];
      equal = equal && head == high;
      high = head > high ? head : high;
    }
    if (equal) {
      shared(at);
      for (int i = 0; i < rows.count; ++i) {
        ++at[i];
        open = open && at[i] < end[i];
      }
      continue;
    }
    // A head below the highest head is missing from the snapshot that holds the highest.
    for (int i = 0; i < rows.count; ++i) {
      while (at[i] < end[i] && rows.indices[i][at[i]] < high) single(i, at[i]++);
      open = open && at[i] < end[i];
    }
  }
  for (int i = 0; i < rows.count; ++i) {
    while (at[i] < end[i]) single(i, at[i]++);
  }
}

// As above, but only whole slices of `cap` entries that are the same in all snapshots, at the same
// place of the row, count as shared. One insertion shifts every later slice of its row.
template <class Shared, class Single>
DGB_HD void split_row_by_slice(const SnapshotRows& rows, int64_t row, int64_t cap, Shared&& shared,
                               Single&& single) {
  int64_t longest = 0;
  for (int i = 0; i < rows.count; ++i) {
    const int64_t length = rows.indptr[i][row + 1] - rows.indptr[i][row];
    longest = length > longest ? length : longest;
  }
  for (int64_t begin = 0; begin < longest; begin += cap) {
    const int64_t base = rows.indptr[0][row] + begin;
    int64_t size = rows.indptr[0][row + 1] - base;
    size = size < 0 ? 0 : (size < cap ? size : cap);
    bool equal = size > 0;
    for (int i = 1; equal && i < rows.count; ++i) {
      const int64_t other = rows.indptr[i][row] + begin;
      const int64_t rest = rows.indptr[i][row + 1] - other;
      equal = (rest < cap ? rest : cap) == size;
      for (int64_t k = 0; equal && k < size; ++k) {
        equal = rows.indices[0][base + k] == rows.indices[i][other + k];
      }
    }
    if (equal) {
      int64_t at[kMaxSnapshots];
      for (int64_t k = 0; k < size; ++k) {
        for (int i = 0; i < rows.count; ++i) at[i] = rows.indptr[i][row] + begin + k;
        shared(at);
      }
      continue;
    }
    for (int i = 0; i < rows.count; ++i) {
      int64_t p = rows.indptr[i][row] + begin;
      const int64_t stop = rows.indptr[i][row + 1] < p + cap ? rows.indptr[i][row + 1] : p + cap;
      for (; p < stop; ++p) single(i, p);
    }
  }
}

// slice_cap 0 compares entries, otherwise whole slices.
template <class Shared, class Single>
DGB_HD void split_row(const SnapshotRows& rows, int64_t row, int64_t slice_cap, Shared&& shared,
                      Single&& single) {
  if (slice_cap == 0) {
    split_row_by_entry(rows, row, shared, single);
  } else {
    split_row_by_slice(rows, row, slice_cap, shared, single);
  }
}

// counts[row] = number of shared entries of the row.
struct CountShared {
  SnapshotRows rows;
  int64_t slice_cap;
  int64_t* counts;  // int64[rows]

  DGB_HD void operator()(int64_t row) const {
    int64_t n = 0;
    split_row(
        rows, row, slice_cap, [&n](const int64_t*) { ++n; }, [](int, int64_t) {});
    counts[row] = n;
  }
};

// Writes the shared and the exclusive entries of one row to their places.
struct FillSplit {
  SnapshotRows rows;
  int64_t slice_cap;
  const int64_t* over_indptr;                  // int64[rows + 1]
  bool weighted;  // an empty array has no address, so the pointers cannot say it
  const float* values[kMaxSnapshots];          // float32[nnz_i] each, if weighted
  int32_t* over_indices;                       // int32[nnz_over]
  float* over_values;                          // float32[nnz_over, S], if weighted
  int32_t* exclusive_indices[kMaxSnapshots];   // int32[nnz_i - nnz_over]
  float* exclusive_values[kMaxSnapshots];      // float32[nnz_i - nnz_over], if weighted

  DGB_HD void operator()(int64_t row) const {
    int64_t to = over_indptr[row];
    int64_t single_to[kMaxSnapshots];
    for (int i = 0; i < rows.count; ++i) single_to[i] = rows.indptr[i][row] - to;
    split_row(
        rows, row, slice_cap,
        [&](const int64_t* at) {
          over_indices[to] = rows.indices[0][at[0]];
          if (weighted) {
            for (int i = 0; i < rows.count; ++i) {
              over_values[to * rows.count + i] = values[i][at[i]];
            }
          }
          ++to;
        },
        [&](int i, int64_t p) {
          exclusive_indices[i][single_to[i]] = rows.indices[i][p];
          if (weighted) exclusive_values[i][single_to[i]] = values[i][p];
          ++single_to[i];
        });
  }
};

// Merge of S rows into their union, with one bit per snapshot that holds the entry.
template <class Visit>
DGB_HD void unite_row(const SnapshotRows& rows, int64_t row, Visit&& visit) {
  int64_t at[kMaxSnapshots];
  for (int i = 0; i < rows.count; ++i) at[i] = rows.indptr[i][row];
  for (;;) {
    int32_t low = 0;
    uint32_t mask = 0;
    for (int i = 0; i < rows.count; ++i) {
      if (at[i] == rows.indptr[i][row + 1]) continue;
      const int32_t head = rows.indices[i][at[i]];
      if (mask == 0 || head < low) {
        low = head;
        mask = 1u << i;
      } else if (head == low) {
        mask |= 1u << i;
      }
    }
    if (mask == 0) return;
    visit(low, mask, at);
    for (int i = 0; i < rows.count; ++i) at[i] += (mask >> i) & 1u;
  }
}

struct CountUnion {
  SnapshotRows rows;
  int64_t* counts;  // int64[rows]

  DGB_HD void operator()(int64_t row) const {
    int64_t n = 0;
    unite_row(rows, row, [&n](int32_t, uint32_t, const int64_t*) { ++n; });
    counts[row] = n;
  }
};

struct FillUnion {
  SnapshotRows rows;
  const int64_t* union_indptr;         // int64[rows + 1]
  const float* values[kMaxSnapshots];  // all null, or all float32[nnz_i]
  int32_t* union_indices;              // int32[nnz_union]
  int32_t* union_mask;                 // int32[nnz_union], bit i = held by snapshot i
  float* union_values;                 // float32[nnz_union, S], 0 where not held, or null

  DGB_HD void operator()(int64_t row) const {
    int64_t to = union_indptr[row];
    unite_row(rows, row, [&](int32_t column, uint32_t mask, const int64_t* at) {
      union_indices[to] = column;
      union_mask[to] = static_cast<int32_t>(mask);
      if (union_values != nullptr) {
        for (int i = 0; i < rows.count; ++i) {
          union_values[to * rows.count + i] = ((mask >> i) & 1u) ? values[i][at[i]] : 0.0f;
        }
      }
      ++to;
    });
  }
};

}  // namespace dgbench
