// A large tree of sums on a device: searched by a thread for each number, built and changed level by
// level. Threads that change neighbours write the same sum of the same four children.
#include "common/launch.cuh"
#include "weighted/cuda_tree_launchers.h"
#include "weighted/functors.hpp"

namespace dgbench {
namespace {

constexpr uint32_t kDrawPurpose = 0x53495357u;  // of weighted/cpu_search.hpp

template <class W>
struct AddUp {  // one level above `children`
  const W* children;
  W* above;
  DGB_HD void operator()(int64_t j) const { above[j] = sum_of_children<4>(children + 4 * j); }
};

template <class W>
DGB_HD int64_t find(const SumTree<W>& tree, W g) {
  int64_t node = 0;
  for (int l = tree.levels - 1; l >= 0; --l) {
    node = 4 * node + choose_child<4>(tree.sums + tree.level_at[l] + 4 * node, g);
  }
  return node;
}

template <class W>
struct Search {
  SumTree<W> tree;
  const W* g;
  int64_t* items;
  DGB_HD void operator()(int64_t i) const { items[i] = find(tree, g[i]); }
};

template <class W>
struct Draw {
  SumTree<W> tree;
  uint64_t seed, stream;
  int64_t first;
  int64_t* items;
  DGB_HD void operator()(int64_t i) const {
    const auto number = static_cast<uint64_t>(first + i);
    const uint64_t pair = number / 2;
    const Draws two = philox(static_cast<uint32_t>(pair), static_cast<uint32_t>(pair >> 32),
                             static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32),
                             static_cast<uint32_t>(seed),
                             static_cast<uint32_t>(seed >> 32) ^ kDrawPurpose);
    const W total = sum_of_children<4>(tree.sums + tree.level_at[tree.levels - 1]);
    items[i] = find(tree, scale_bits(number & 1 ? two.odd : two.even, total));
  }
};

template <class W>
struct SetWeights {
  W* sums;
  const int64_t* items;
  const W* weights;
  DGB_HD void operator()(int64_t i) const { sums[items[i]] = weights[i]; }
};

template <class W>
struct AddUpChanged {
  const W* children;
  W* above;
  const int64_t* items;
  int shift;
  DGB_HD void operator()(int64_t i) const {
    const int64_t j = items[i] >> shift;
    above[j] = sum_of_children<4>(children + 4 * j);
  }
};

template <class W>
int build(const SumTree<W>& tree, void* stream) {
  int64_t width = tree.n;
  for (int l = 0; l + 1 < tree.levels; ++l) {
    width = ceil_div(width, 4);
    const AddUp<W> level{tree.sums + tree.level_at[l], tree.sums + tree.level_at[l + 1]};
    const int status = for_each(width, level, stream);
    if (status != 0) return status;
  }
  return 0;
}

template <class W>
int modify(const SumTree<W>& tree, const int64_t* items, const W* weights, int64_t count,
           void* stream) {
  int status = for_each(count, SetWeights<W>{tree.sums, items, weights}, stream);
  for (int l = 0; status == 0 && l + 1 < tree.levels; ++l) {
    const AddUpChanged<W> level{tree.sums + tree.level_at[l], tree.sums + tree.level_at[l + 1],
                                items, 2 * (l + 1)};
    status = for_each(count, level, stream);
  }
  return status;
}

}  // namespace

extern "C" {

int dgb_tree_build_int(const SumTree<int64_t>* tree, void* stream) { return build(*tree, stream); }
int dgb_tree_build_float(const SumTree<double>* tree, void* stream) { return build(*tree, stream); }
int dgb_tree_search_int(const SumTree<int64_t>* tree, const int64_t* g, int64_t count,
                        int64_t* items, void* stream) {
  return for_each(count, Search<int64_t>{*tree, g, items}, stream);
}
int dgb_tree_search_float(const SumTree<double>* tree, const double* g, int64_t count,
                          int64_t* items, void* stream) {
  return for_each(count, Search<double>{*tree, g, items}, stream);
}
int dgb_tree_draw_int(const SumTree<int64_t>* tree, uint64_t seed, uint64_t stream_id,
                      int64_t first, int64_t count, int64_t* items, void* stream) {
  return for_each(count, Draw<int64_t>{*tree, seed, stream_id, first, items}, stream);
}
int dgb_tree_draw_float(const SumTree<double>* tree, uint64_t seed, uint64_t stream_id,
                        int64_t first, int64_t count, int64_t* items, void* stream) {
  return for_each(count, Draw<double>{*tree, seed, stream_id, first, items}, stream);
}
int dgb_tree_modify_int(const SumTree<int64_t>* tree, const int64_t* items, const int64_t* weights,
                        int64_t count, void* stream) {
  return modify(*tree, items, weights, count, stream);
}
int dgb_tree_modify_float(const SumTree<double>* tree, const int64_t* items, const double* weights,
                          int64_t count, void* stream) {
  return modify(*tree, items, weights, count, stream);
}

}  // extern "C"

}  // namespace dgbench
