// Bindings of large trees of sums; kernels_cuda/weighted/device_segment_tree.py keeps their arrays.
#include "common/operator_definition.hpp"
#include "weighted/cuda_tree_launchers.h"

using namespace nb::literals;

namespace dgbench {
namespace {

template <class W>
SumTree<W> lay_out(int64_t n) {
  if (n < 1 || n > int64_t{1} << 33) reject("a tree has 1 to 2^33 weights");
  SumTree<W> tree{};
  tree.n = n;
  int64_t at = 0;
  for (int64_t width = n;;) {
    const int64_t padded = (width + 3) / 4 * 4;
    tree.level_at[tree.levels++] = at;
    at += padded;
    if (padded == 4) break;
    width = padded / 4;
  }
  tree.level_at[tree.levels] = at;
  return tree;
}

int64_t tree_nodes(int64_t n) {
  const SumTree<int64_t> tree = lay_out<int64_t>(n);
  return tree.level_at[tree.levels];
}

// Where the sums of the top level begin: their sum is the total.
int64_t tree_top(int64_t n) {
  const SumTree<int64_t> tree = lay_out<int64_t>(n);
  return tree.level_at[tree.levels - 1];
}

template <class W>
SumTree<W> tree_of(const DeviceArray<W>& sums, int64_t n) {
  SumTree<W> tree = lay_out<W>(n);
  check_size(sums, static_cast<std::size_t>(tree.level_at[tree.levels]), "sums");
  tree.sums = sums.data();
  return tree;
}

int build(const SumTree<int64_t>& t, void* stream) { return dgb_tree_build_int(&t, stream); }
int build(const SumTree<double>& t, void* stream) { return dgb_tree_build_float(&t, stream); }
int search(const SumTree<int64_t>& t, const int64_t* g, int64_t n, int64_t* out, void* stream) {
  return dgb_tree_search_int(&t, g, n, out, stream);
}
int search(const SumTree<double>& t, const double* g, int64_t n, int64_t* out, void* stream) {
  return dgb_tree_search_float(&t, g, n, out, stream);
}
int draw(const SumTree<int64_t>& t, uint64_t seed, uint64_t numbers, int64_t first, int64_t n,
         int64_t* out, void* stream) {
  return dgb_tree_draw_int(&t, seed, numbers, first, n, out, stream);
}
int draw(const SumTree<double>& t, uint64_t seed, uint64_t numbers, int64_t first, int64_t n,
         int64_t* out, void* stream) {
  return dgb_tree_draw_float(&t, seed, numbers, first, n, out, stream);
}
int modify(const SumTree<int64_t>& t, const int64_t* items, const int64_t* weights, int64_t n,
           void* stream) {
  return dgb_tree_modify_int(&t, items, weights, n, stream);
}
int modify(const SumTree<double>& t, const int64_t* items, const double* weights, int64_t n,
           void* stream) {
  return dgb_tree_modify_float(&t, items, weights, n, stream);
}

template <class W>
void bind_of(nb::module_& m) {
  add_operator(m,
      "tree_build",
      [](DeviceArray<W> sums, int64_t n, std::uintptr_t stream) {
        check_launch(build(tree_of<W>(sums, n), stream_of(stream)), "tree_build");
      },
      "sums"_a.noconvert(), "n"_a, "stream"_a);
  add_operator(m,
      "tree_search",
      [](DeviceArray<W> sums, int64_t n, DeviceArray<const W> g, DeviceArray<int64_t> items,
         std::uintptr_t stream) {
        check_size(items, g.size(), "items");
        const auto count = static_cast<int64_t>(g.size());
        check_launch(search(tree_of<W>(sums, n), g.data(), count, items.data(), stream_of(stream)),
                     "tree_search");
      },
      "sums"_a.noconvert(), "n"_a, "g"_a.noconvert(), "items"_a.noconvert(), "stream"_a);
  add_operator(m,
      "tree_draw",
      [](DeviceArray<W> sums, int64_t n, uint64_t seed, uint64_t numbers, int64_t first,
         DeviceArray<int64_t> items, std::uintptr_t stream) {
        const auto count = static_cast<int64_t>(items.size());
        check_launch(draw(tree_of<W>(sums, n), seed, numbers, first, count, items.data(),
                          stream_of(stream)),
                     "tree_draw");
      },
      "sums"_a.noconvert(), "n"_a, "seed"_a, "numbers"_a, "first"_a, "items"_a.noconvert(),
      "stream"_a);
  add_operator(m,
      "tree_modify",
      [](DeviceArray<W> sums, int64_t n, DeviceArray<const int64_t> items,
         DeviceArray<const W> weights, std::uintptr_t stream) {
        check_size(weights, items.size(), "weights");
        const auto count = static_cast<int64_t>(items.size());
        check_launch(modify(tree_of<W>(sums, n), items.data(), weights.data(), count,
                            stream_of(stream)),
                     "tree_modify");
      },
      "sums"_a.noconvert(), "n"_a, "items"_a.noconvert(), "weights"_a.noconvert(), "stream"_a);
}

}  // namespace

void bind_weighted_tree(nb::module_& m) {
  add_operator(m, "tree_nodes", &tree_nodes, "n"_a);
  add_operator(m, "tree_top", &tree_top, "n"_a);
  add_operator(m,
      "tree_before",
      [](DeviceArray<int64_t> sums, int64_t n, DeviceArray<const int64_t> items,
         DeviceArray<int64_t> before, std::uintptr_t stream) {
        check_size(before, items.size(), "before");
        const SumTree<int64_t> tree = tree_of<int64_t>(sums, n);
        const auto count = static_cast<int64_t>(items.size());
        check_launch(dgb_tree_before(&tree, items.data(), count, before.data(), stream_of(stream)),
                     "tree_before");
      },
      "sums"_a.noconvert(), "n"_a, "items"_a.noconvert(), "before"_a.noconvert(), "stream"_a);
  add_operator(m,
      "tree_draw_ranges",
      [](DeviceArray<int64_t> sums, int64_t n, uint64_t seed, uint64_t numbers,
         DeviceArray<const int64_t> owner, DeviceArray<const int64_t> offsets,
         DeviceArray<const int64_t> made, DeviceArray<const int64_t> base,
         DeviceArray<const int64_t> mass, DeviceArray<int64_t> items, std::uintptr_t stream) {
        check_size(items, owner.size(), "items");
        check_size(offsets, made.size() + 1, "offsets");
        check_size(base, made.size(), "base");
        check_size(mass, made.size(), "mass");
        const SumTree<int64_t> tree = tree_of<int64_t>(sums, n);
        check_launch(dgb_tree_draw_ranges(&tree, seed, numbers, owner.data(), offsets.data(),
                                          made.data(), base.data(), mass.data(),
                                          static_cast<int64_t>(items.size()), items.data(),
                                          stream_of(stream)),
                     "tree_draw_ranges");
      },
      "sums"_a.noconvert(), "n"_a, "seed"_a, "numbers"_a, "owner"_a.noconvert(),
      "offsets"_a.noconvert(), "made"_a.noconvert(), "base"_a.noconvert(), "mass"_a.noconvert(),
      "items"_a.noconvert(), "stream"_a);
  bind_of<int64_t>(m);
  bind_of<double>(m);
}

}  // namespace dgbench
