// Bindings of samples of edges; kernels_cuda/edge_sampling/device.py makes the arrays.
#include "common/operator_definition.hpp"
#include "common/require.hpp"
#include "edge_sampling/cuda_launchers.h"

using namespace nb::literals;

namespace dgbench {
namespace {

void keep_rows(DeviceArray<const int64_t> indptr, DeviceArray<const int32_t> eid,
               DeviceArray<const int64_t> needed, uint64_t seed, DeviceArray<bool> keep,
               std::uintptr_t stream) {
  if (indptr.size() != needed.size() + 1) reject("indptr must have one more element than needed");
  check_size(keep, eid.size(), "keep");
  const KeepRows rows{indptr.data(), eid.data(), needed.data(),
                      seed,          static_cast<int64_t>(needed.size()), keep.data()};
  check_launch(dgb_keep_rows(&rows, stream_of(stream)), "keep_rows");
}

void row_uniforms(uint64_t seed, DeviceArray<double> out, std::uintptr_t stream) {
  const auto rows = static_cast<int64_t>(out.size());
  check_launch(dgb_row_uniforms(seed, rows, out.data(), stream_of(stream)), "row_uniforms");
}

void count_before(DeviceArray<const int64_t> indptr, DeviceArray<const double> t,
                  DeviceArray<const int64_t> vertices, DeviceArray<const double> bounds,
                  DeviceArray<int64_t> counts, std::uintptr_t stream) {
  check_size(bounds, vertices.size(), "bounds");
  check_size(counts, vertices.size(), "counts");
  const auto count = static_cast<int64_t>(vertices.size());
  check_launch(dgb_count_before(indptr.data(), t.data(), vertices.data(), bounds.data(), count,
                                counts.data(), stream_of(stream)),
               "count_before");
}

// Sums of a tree of `frontier` slots, level by level; returns how many.
int64_t lay_out(int64_t frontier, FrontierWalk& w) {
  int64_t at = 0;
  w.levels = 0;
  for (int64_t width = frontier;;) {
    const int64_t padded = (width + 3) / 4 * 4;
    w.level_at[w.levels++] = at;
    at += padded;
    if (padded == 4) break;
    width = padded / 4;
  }
  w.nodes = at;
  return at;
}

int64_t frontier_nodes(int64_t frontier) {
  if (frontier < 1 || frontier > int64_t{1} << 31) reject("frontier must lie in 1 .. 2^31");
  FrontierWalk w{};
  return lay_out(frontier, w);
}

// Scratch: `slots` int64[2 frontier a subgraph] and `trees` int32[nodes] or, if `wide`, int64; None
// for what is to lie in shared memory. The trees do only where the slots do or are given.
void walk_frontier(DeviceArray<const int64_t> indptr, DeviceArray<const int32_t> dst,
                   DeviceArray<const int32_t> occupied, int64_t frontier, int64_t draws,
                   bool replacement, bool by_degree, uint64_t seed, uint64_t numbers,
                   DeviceArray<int32_t> members, MaybeDevice<int64_t> slots,
                   MaybeDevice<int32_t> trees, MaybeDevice<int64_t> wide_trees,
                   DeviceArray<int64_t> reseeded, DeviceArray<int32_t> overflow,
                   std::uintptr_t stream) {
  if (indptr.size() == 0) reject("indptr must not be empty");
  FrontierWalk w{};
  w.vertices = static_cast<int64_t>(indptr.size()) - 1;
  w.count = static_cast<int64_t>(reseeded.size());
  w.words = (w.vertices + 31) / 32;
  const auto count = reseeded.size();
  if (frontier < 1 || draws < 0) reject("frontier must be at least 1 and draws at least 0");
  if (!replacement && frontier > w.vertices) reject("frontier is above the number of vertices");
  const auto nodes = static_cast<std::size_t>(lay_out(frontier, w));
  check_size(members, count * static_cast<std::size_t>(w.words), "members");
  check_size(overflow, count, "overflow");
  check_optional(slots, count * 2 * static_cast<std::size_t>(frontier), "slots");
  check_optional(trees, count * nodes, "trees");
  check_optional(wide_trees, count * nodes, "wide_trees");
  const bool wide = wide_trees.has_value();
  if ((wide || trees) && !slots) reject("trees outside of shared memory need slots there too");
  w.indptr = indptr.data();
  w.dst = dst.data();
  w.occupied = occupied.data();
  w.some = static_cast<int64_t>(occupied.size());
  w.frontier = frontier;
  w.draws = draws;
  w.replacement = replacement;
  w.by_degree = by_degree;
  w.seed = seed;
  w.stream = numbers;
  w.members = reinterpret_cast<uint32_t*>(members.data());
  w.slots = reinterpret_cast<FrontierSlot*>(address(slots));
  w.trees = wide ? static_cast<void*>(wide_trees->data()) : static_cast<void*>(address(trees));
  w.reseeded = reseeded.data();
  w.overflow = overflow.data();
  check_launch(dgb_walk_frontier(&w, wide, stream_of(stream)), "walk_frontier");
}

}  // namespace

void bind_edge_sampling(nb::module_& m) {
  add_operator(m, "keep_rows", &keep_rows, "indptr"_a.noconvert(), "eid"_a.noconvert(),
        "needed"_a.noconvert(), "seed"_a, "keep"_a.noconvert(), "stream"_a);
  add_operator(m, "row_uniforms", &row_uniforms, "seed"_a, "out"_a.noconvert(), "stream"_a);
  add_operator(m, "count_before", &count_before, "indptr"_a.noconvert(), "t"_a.noconvert(),
        "vertices"_a.noconvert(), "bounds"_a.noconvert(), "counts"_a.noconvert(), "stream"_a);
  add_operator(m, "frontier_nodes", &frontier_nodes, "frontier"_a);
  add_operator(m, "walk_frontier", &walk_frontier, "indptr"_a.noconvert(), "dst"_a.noconvert(),
        "occupied"_a.noconvert(), "frontier"_a, "draws"_a, "replacement"_a, "by_degree"_a, "seed"_a,
        "numbers"_a, "members"_a.noconvert(), "slots"_a.noconvert().none(),
        "trees"_a.noconvert().none(), "wide_trees"_a.noconvert().none(), "reseeded"_a.noconvert(),
        "overflow"_a.noconvert(), "stream"_a);
}

}  // namespace dgbench
