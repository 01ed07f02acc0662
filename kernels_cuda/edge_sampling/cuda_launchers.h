// Samples of a graph's edges on a device; see common/launchers.h for what holds of all of them.
#pragma once

#include <cstdint>

#include "weighted/functors.hpp"

namespace dgbench {

// keep[e] of every edge of rows [indptr[v], indptr[v + 1]); as edge_sampling/cpu_table.cpp decides it.
struct KeepRows {
  const int64_t* indptr;  // [vertices + 1]
  const int32_t* eid;
  const int64_t* needed;  // [vertices]
  uint64_t seed;
  int64_t vertices;
  bool* keep;
};

constexpr int kMaxLevels = 17;  // of four children, above 2^32 slots

struct alignas(16) FrontierSlot {
  int64_t row;
  uint32_t degree;
  int32_t vertex;
};

// Subgraphs by a moving frontier; as edge_sampling/cpu_subgraph.cpp draws them. Sums of a tree are
// stored level by level, the slots first, each level filled up to a multiple of four.
struct FrontierWalk {
  const int64_t* indptr;    // [vertices + 1]
  const int32_t* dst;
  const int32_t* occupied;  // [some], vertices with an edge
  int64_t vertices, some;
  int64_t frontier, draws, count;
  bool replacement, by_degree;
  uint64_t seed, stream;    // of the first subgraph
  int32_t levels;
  int64_t level_at[kMaxLevels], nodes;  // of a tree
  uint32_t* members;        // [count, words], zero before: a bit for every vertex drawn
  int64_t words;
  FrontierSlot* slots;      // [count, frontier], or null: in shared memory
  void* trees;              // [count, nodes] sums, or null: in shared memory
  int64_t* reseeded;        // [count]
  int32_t* overflow;        // [count]: 1 where sums of 32 bits were too small
};

extern "C" {
int dgb_keep_rows(const KeepRows* args, void* stream);
int dgb_row_uniforms(uint64_t seed, int64_t vertices, double* out, void* stream);
// counts[i] of the edges of vertices[i] that are before bounds[i].
int dgb_count_before(const int64_t* indptr, const double* t, const int64_t* vertices,
                     const double* bounds, int64_t count, int64_t* counts, void* stream);
// `wide`: sums of 64 bits, which stand in `trees`.
int dgb_walk_frontier(const FrontierWalk* args, bool wide, void* stream);
}

}  // namespace dgbench
