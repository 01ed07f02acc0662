// Where the neighbours of a vertex within a window of time stand, and which of them are drawn. All
// bodies, on the host and on a device, go by these rules; they differ in the order of their loads.
//
// Positions number the records of a vertex 0 .. before + size - 1 in time order over all of its
// blocks. A window is half open, [begin, end), so its records are those between two positions.
#pragma once

#include <cstdint>

#include "common/host_device.hpp"
#include "common/philox.hpp"
#include "temporal_store/layout.hpp"

namespace dgbench::temporal {

enum class Policy : int32_t { Recent = 0, Uniform = 1 };

struct Range {  // records of a vertex by position, [first, first + count)
  uint32_t first;
  uint32_t count;
};

DGB_HD uint32_t total(const Vertex& v) { return v.before + v.size; }
DGB_HD bool is_deleted(const Vertex& v) { return (v.flags & kDeleted) != 0; }

// Number of records in sorted[0, n) that are older than `key`: n halves, no branch on the data.
template <class Record>
DGB_HD uint32_t older_in(const Record* sorted, uint32_t n, double key, double origin) {
  uint32_t low = 0;
  while (n > 0) {
    const uint32_t half = n / 2;
    const bool older = time_of(sorted[low + half], origin) < key;
    low = older ? low + half + 1 : low;
    n = older ? n - half - 1 : half;
  }
  return low;
}

// Number of fences in sorted[0, n) that begin before `key`.
DGB_HD uint32_t fences_before(const Fence* sorted, uint32_t n, double key) {
  uint32_t low = 0;
  while (n > 0) {
    const uint32_t half = n / 2;
    const bool older = sorted[low + half].t_min < key;
    low = older ? low + half + 1 : low;
    n = older ? n - half - 1 : half;
  }
  return low;
}

// Records of one block, and the position of the first.
struct Piece {
  uint64_t first;
  uint32_t before;
  uint32_t size;
};

// The block in which a search for `key` ends: the newest one that begins before it. Empty, at
// position 0, when none does.
DGB_HD Piece piece_of_time(const Vertex& v, const Fence* fences, double key) {
  if (v.size > 0 && v.t_min < key) return {v.first, v.before, v.size};
  const Fence* const mine = fences + v.fence;
  const uint32_t m = fences_before(mine, v.fences, key);
  if (m == 0) return {0, 0, 0};
  return {mine[m - 1].first, mine[m - 1].before, mine[m - 1].size};
}

// The block that holds a position below total(v).
DGB_HD Piece piece_of_position(const Vertex& v, const Fence* fences, uint32_t position) {
  if (position >= v.before) return {v.first, v.before, v.size};
  const Fence* const mine = fences + v.fence;
  uint32_t low = 0;  // the last fence with before <= position
  uint32_t n = v.fences;
  while (n > 1) {
    const uint32_t half = n / 2;
    low = mine[low + half].before <= position ? low + half : low;
    n -= half;
  }
  return {mine[low].first, mine[low].before, mine[low].size};
}

// Number of records of a vertex that are older than `key`.
template <class Record>
DGB_HD uint32_t older_than(const Vertex& v, const Fence* fences, const Record* records, double key,
                           double origin) {
  if (v.size > 0 && v.t_max < key) return total(v);
  const Piece piece = piece_of_time(v, fences, key);
  return piece.before + older_in(records + piece.first, piece.size, key, origin);
}

// All records of a vertex in [begin, end), deleted ones included.
template <class Record>
DGB_HD Range window_of(const Vertex& v, const Fence* fences, const Record* records, double begin,
                       double end, double origin) {
  if (is_deleted(v) || total(v) == 0 || !(begin < end)) return {0, 0};
  const uint32_t last = older_than(v, fences, records, end, origin);
  const uint32_t first = older_than(v, fences, records, begin, origin);
  return {first, last - first};
}

// How many of n candidates are returned.
DGB_HD uint32_t taken(uint32_t n, uint32_t fanout, bool replace, Policy policy) {
  if (policy == Policy::Uniform && replace) return n > 0 ? fanout : 0;
  return n < fanout ? n : fanout;
}

// Floyd's rule, step i of k from n > k: `r` is a number below n - k + i + 1; it is taken unless it is
// among the i chosen before, else n - k + i is, which cannot be.
DGB_HD uint32_t floyd(uint32_t r, uint32_t j, const uint32_t* chosen, uint32_t i) {
  bool there = false;
  for (uint32_t q = 0; q < i; ++q) there |= chosen[q] == r;
  return there ? j : r;
}

// Writes the candidates that a uniform sample takes, numbers in [0, n), in the order of the output;
// taken(n, fanout, ...) of them.
DGB_HD void draw_uniform(uint32_t n, uint32_t fanout, bool replace, const DrawKey& key,
                         uint64_t position, uint32_t* chosen) {
  if (n == 0) return;
  if (!replace && n <= fanout) {
    for (uint32_t i = 0; i < n; ++i) chosen[i] = i;
    return;
  }
  Draws two{0, 0};
  for (uint32_t i = 0; i < fanout; ++i) {
    if (i % 2 == 0) two = draws_of(key, position, i / 2);
    const uint64_t draw = i % 2 == 0 ? two.even : two.odd;
    if (replace) {
      chosen[i] = static_cast<uint32_t>(below(draw, n));
    } else {
      const uint32_t j = n - fanout + i;
      chosen[i] = floyd(static_cast<uint32_t>(below(draw, uint64_t{j} + 1)), j, chosen, i);
    }
  }
}

// Position of the i-th neighbour of a target in the next hop; the target itself goes on as child 0.
DGB_HD int64_t child_position(int64_t position, int64_t fanout, int64_t child) {
  return position * (fanout + 1) + child;
}

}  // namespace dgbench::temporal
