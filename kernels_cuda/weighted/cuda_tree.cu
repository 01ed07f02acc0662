// A large tree of sums on a device: searched by a thread for each number, built and changed level by
// level. Threads that change neighbours write the same sum of the same four children.
#include "common/launch.cuh"
#include "weighted/cuda_tree_launchers.h"
#include "weighted/functors.hpp"

namespace dgbench {
namespace {

constexpr uint32_t kDrawPurpose = 0x53495357u;  // of weighted/cpu_search.hpp
constexpr uint32_t kRangePurpose = 0x53495352u;

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

struct Before {
  SumTree<int64_t> tree;
  const int64_t* items;  // in [0, n]
  int64_t* before;
  DGB_HD void operator()(int64_t i) const {
    int64_t sum = 0;
    int64_t node = items[i];
    for (int l = 0; l < tree.levels; ++l, node >>= 2) {
      const int64_t* level = tree.sums + tree.level_at[l];
      const bool top = l + 1 == tree.levels;
      for (int64_t k = top ? 0 : node & ~int64_t{3}; k < node; ++k) sum += level[k];
    }
    before[i] = sum;
  }
};

struct DrawRanges {
  SumTree<int64_t> tree;
  uint64_t seed, stream;
  const int64_t *owner, *offsets, *made, *base, *mass;
  int64_t* items;
  DGB_HD void operator()(int64_t i) const {
    const int64_t range = owner[i];
    const auto number = static_cast<uint64_t>(made[range] + i - offsets[range]);
    const uint64_t pair = number / 2;
    const uint64_t own = stream + static_cast<uint64_t>(range);
    const Draws two = philox(static_cast<uint32_t>(pair), static_cast<uint32_t>(pair >> 32),
                             static_cast<uint32_t>(own), static_cast<uint32_t>(own >> 32),
                             static_cast<uint32_t>(seed),
                             static_cast<uint32_t>(seed >> 32) ^ kRangePurpose);
    items[i] = find(tree, base[range] + scale_bits(number & 1 ? two.odd : two.even, mass[range]));
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
int dgb_tree_before(const SumTree<int64_t>* tree, const int64_t* items, int64_t count,
                    int64_t* before, void* stream) {
  return for_each(count, Before{*tree, items, before}, stream);
}
int dgb_tree_draw_ranges(const SumTree<int64_t>* tree, uint64_t seed, uint64_t stream_id,
                         const int64_t* owner, const int64_t* offsets, const int64_t* made,
                         const int64_t* base, const int64_t* mass, int64_t count, int64_t* items,
                         void* stream) {
  const DrawRanges draw{*tree, seed, stream_id, owner, offsets, made, base, mass, items};
  return for_each(count, draw, stream);
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
