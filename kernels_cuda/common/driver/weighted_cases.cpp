// Weighted draws: the k smallest keys of sets of any size, trees of sums, samples of edges.
#include <algorithm>
#include <numeric>
#include <type_traits>

#include "common/driver/driver.hpp"
#include "edge_sampling/cuda_launchers.h"
#include "weighted/cuda_launchers.h"
#include "weighted/cuda_tree_launchers.h"
#include "weighted/functors.hpp"

namespace dgbench::driver {
namespace {

// Items of the k smallest keys of [begin, end) in ascending order, -1 for those that are not there.
std::vector<int64_t> smallest(const std::vector<uint32_t>& keys, int64_t begin, int64_t end,
                              int64_t k) {
  std::vector<int64_t> items;
  for (int64_t i = begin; i < end; ++i) {
    if (keys[i] != kNeverTaken) items.push_back(i);
  }
  std::stable_sort(items.begin(), items.end(),
                   [&](int64_t a, int64_t b) { return keys[a] < keys[b]; });
  if (static_cast<int64_t>(items.size()) > k) items.resize(k);
  std::sort(items.begin(), items.end());
  items.resize(k, -1);
  return items;
}

enum class Keys { kAny, kTies, kOfWeights };

// Sets of these sizes with three items between, share 0 (none), 1 (half) or 2 (all) of each.
void run_select(const std::vector<int64_t>& sizes, int share, Keys kind) {
  Random random(sizes.size() * 3 + share);
  std::vector<int64_t> begin, end, wanted, right;
  int64_t largest = 0, items = 0;
  for (const int64_t size : sizes) {
    begin.push_back(end.empty() ? 0 : end.back() + 3);
    end.push_back(begin.back() + size);
    wanted.push_back(share * size / 2);
    largest = std::max(largest, size);
    items += size;
  }
  std::vector<uint32_t> keys(end.empty() ? 0 : end.back());
  std::vector<float> weights(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const bool never = random.below(50) == 0;
    weights[i] = never ? 0.0f : static_cast<float>(1 + random.below(9));
    if (never) {
      keys[i] = kNeverTaken;
    } else if (kind == Keys::kOfWeights) {
      keys[i] = float_as_bits(item_key(7, 2, i, weights[i]));
    } else {
      keys[i] = static_cast<uint32_t>(random.below(kind == Keys::kTies ? 3 : 1 << 30));
    }
  }
  int64_t absent = 0;
  for (std::size_t s = 0; s < sizes.size(); ++s) {
    const std::vector<int64_t> own = smallest(keys, begin[s], end[s], wanted[s]);
    absent += std::count(own.begin(), own.end(), -1);
    right.insert(right.end(), own.begin(), own.end());
  }
  const DeviceArray<int64_t> d_begin(begin), d_end(end), out(offsets_of(wanted));
  const DeviceArray<int64_t> chosen(right.size());
  const DeviceArray<int32_t> given(std::vector<int32_t>(keys.begin(), keys.end()));
  const DeviceArray<float> d_weights(weights);
  const auto count = static_cast<int64_t>(sizes.size());
  const bool is_given = kind != Keys::kOfWeights;
  SelectSpace space{};
  const DeviceArray<int64_t> memory(lay_out(space, count, largest, items, is_given, nullptr));
  lay_out(space, count, largest, items, is_given, memory.data());
  const DeviceArray<unsigned long long> counters(kCounters, 0);
  space.counters = counters.data();
  const Sets sets{d_begin.data(), d_end.data(), out.data(), count, chosen.data()};
  const KeySource source{is_given ? given.data() : nullptr, d_weights.data(), 7, 2};
  RUN(dgb_select_small(&sets, &source, &space, nullptr));
  RUN(dgb_select_large(&sets, &source, &space, nullptr));
  const std::string name = named("sets, share, keys", {count, share, static_cast<int>(kind)});
  expect_equal(chosen.host(), right, "select, " + name);
  expect_equal<uint64_t>({counters.host()[kMissing]}, {static_cast<uint64_t>(absent)},
                         "missing, " + name);
}

DRIVER_CASE(select) {
  for (const auto& sizes : std::vector<std::vector<int64_t>>{
           {}, {0}, {1}, {5, 0, 32, 33, 1}, {31, 64, 8191, 8192}, {8193}, {3, 20000, 7, 9001}}) {
    for (const int share : {0, 1, 2}) {
      for (const Keys kind : {Keys::kAny, Keys::kTies, Keys::kOfWeights}) {
        run_select(sizes, share, kind);
      }
    }
  }
}

int examine(const float* w, int64_t n, const Examined* into) {
  return dgb_examine_float(w, n, into, nullptr);
}
int examine(const double* w, int64_t n, const Examined* into) {
  return dgb_examine_double(w, n, into, nullptr);
}
int examine(const int64_t* w, int64_t n, const Examined* into) {
  return dgb_examine_int(w, n, into, nullptr);
}

template <class W>
void run_examine(const std::vector<W>& weights, bool improper, bool outside) {
  const auto n = static_cast<int64_t>(weights.size());
  const DeviceArray<W> given(weights);
  const DeviceArray<float> plain(n);
  const DeviceArray<int64_t> set(4);
  const DeviceArray<unsigned long long> counters(kCounters, 0);
  const Examined all{plain.data(), set.data(), 3, counters.data()};
  const Examined look{nullptr, nullptr, 0, counters.data()};
  RUN(examine(given.data(), n, &all));
  RUN(examine(given.data(), n, &look));
  const std::string name = named("examine: weights, bytes", {n, static_cast<int64_t>(sizeof(W))});
  expect(counters.host()[kImproper] == (improper ? 1u : 0u), name + ": improper");
  expect(counters.host()[kOutside] == (outside ? 1u : 0u), name + ": outside");
  if (n > 0) expect_equal<int64_t>(set.host(), {0, n, 0, 3}, name + ": set");
  const std::vector<float> found = plain.host();
  for (int64_t i = 0; i < n; ++i) {
    const auto right = static_cast<float>(weights[i]);
    expect(found[i] == right || (found[i] != found[i] && right != right), name + ": as floats");
  }
}

DRIVER_CASE(examine) {
  const double kInfinite = 1e308 * 10;
  run_examine<float>({}, false, false);
  run_examine<float>({0.0f, 1.0f, 0x1p60f, 0x1p-60f}, false, false);
  run_examine<float>(std::vector<float>(1000, 2.0f), false, false);
  run_examine<float>({1.0f, -1.0f}, true, false);
  run_examine<double>({0.0, 1e300}, false, true);
  run_examine<double>({1.0, 1e-300}, false, true);
  run_examine<double>({1.0, kInfinite}, true, true);
  run_examine<double>({1.0, kInfinite - kInfinite}, true, false);
  run_examine<int64_t>({0, 1, int64_t{1} << 62}, false, false);
  run_examine<int64_t>({5, -1}, true, false);
}

DRIVER_CASE(make_keys) {
  for (const int64_t n : {0, 1, 5, 1000}) {
    Random random(n);
    std::vector<float> weights = random.reals(n);
    for (float& weight : weights) weight = weight < 0 ? 0.0f : weight;
    std::vector<uint32_t> right;
    for (int64_t i = 0; i < n; ++i) {
      const float key = item_key(9, 4, i, weights[i]);
      right.push_back(weights[i] > 0 ? float_as_bits(key) : kNeverTaken);
    }
    const DeviceArray<float> d_weights(weights);
    const DeviceArray<uint32_t> keys(n);
    const KeySource source{nullptr, d_weights.data(), 9, 4};
    RUN(dgb_make_keys(&source, n, keys.data(), nullptr));
    expect_equal(keys.host(), right, named("make_keys", {n}));
  }
}

template <class W>
struct Tree;
template <>
struct Tree<int64_t> {
  static constexpr auto build = dgb_tree_build_int;
  static constexpr auto search = dgb_tree_search_int;
  static constexpr auto draw = dgb_tree_draw_int;
  static constexpr auto modify = dgb_tree_modify_int;
};
template <>
struct Tree<double> {
  static constexpr auto build = dgb_tree_build_float;
  static constexpr auto search = dgb_tree_search_float;
  static constexpr auto draw = dgb_tree_draw_float;
  static constexpr auto modify = dgb_tree_modify_float;
};

// Item of each number below the total: the first whose running sum is above it. Weights are small
// whole numbers, so sums of floats are exact too.
template <class W>
void expect_tree(const SumTree<W>& tree, const std::vector<W>& weights, const std::string& name) {
  std::vector<W> numbers;
  std::vector<int64_t> right;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    for (W k = 0; k < weights[i]; ++k) right.push_back(static_cast<int64_t>(i));
  }
  for (std::size_t k = 0; k < right.size(); ++k) numbers.push_back(static_cast<W>(k));
  const DeviceArray<W> g(numbers);
  const DeviceArray<int64_t> items(right.size());
  RUN(Tree<W>::search(&tree, g.data(), static_cast<int64_t>(right.size()), items.data(), nullptr));
  expect_equal(items.host(), right, "search, " + name);
  if (right.empty()) return;
  const DeviceArray<int64_t> drawn(333);
  RUN(Tree<W>::draw(&tree, 5, 6, 1, 333, drawn.data(), nullptr));
  for (const int64_t item : drawn.host()) {
    const bool inside = item >= 0 && item < static_cast<int64_t>(weights.size());
    expect(inside && weights[item] > 0, "draw, " + name + ": an item without weight");
  }
}

// Sums before every item; draws of the two halves of the items, each from its own numbers.
void expect_ranges(const SumTree<int64_t>& tree, const std::vector<int64_t>& weights,
                   const std::string& name) {
  const auto n = static_cast<int64_t>(weights.size());
  std::vector<int64_t> every(n + 1), sums(n + 1, 0);
  for (int64_t i = 0; i <= n; ++i) {
    every[i] = i;
    if (i > 0) sums[i] = sums[i - 1] + weights[i - 1];
  }
  const DeviceArray<int64_t> items(every), before(n + 1);
  RUN(dgb_tree_before(&tree, items.data(), n + 1, before.data(), nullptr));
  expect_equal(before.host(), sums, "before, " + name);

  constexpr int64_t kDraws = 40;
  const std::vector<int64_t> edges{0, n / 2, n};
  std::vector<int64_t> owner, offsets{0}, base, mass, range;
  for (int64_t r = 0; r < 2; ++r) {
    const int64_t weight = sums[edges[r + 1]] - sums[edges[r]];
    if (weight == 0) continue;
    for (int64_t i = 0; i < kDraws; ++i) owner.push_back(static_cast<int64_t>(range.size()));
    offsets.push_back(offsets.back() + kDraws);
    base.push_back(sums[edges[r]]);
    mass.push_back(weight);
    range.push_back(r);
  }
  if (range.empty()) return;
  const DeviceArray<int64_t> d_owner(owner), d_offsets(offsets), d_base(base), d_mass(mass);
  const DeviceArray<int64_t> made(std::vector<int64_t>(range.size(), 3)), drawn(owner.size());
  RUN(dgb_tree_draw_ranges(&tree, 5, 6, d_owner.data(), d_offsets.data(), made.data(),
                           d_base.data(), d_mass.data(), static_cast<int64_t>(owner.size()),
                           drawn.data(), nullptr));
  const std::vector<int64_t> found = drawn.host();
  for (std::size_t i = 0; i < found.size(); ++i) {
    const int64_t r = range[owner[i]], item = found[i];
    const bool inside = item >= edges[r] && item < edges[r + 1];
    expect(inside && weights[item] > 0, "draw_ranges, " + name + ": an item of another range");
  }
}

template <class W>
void run_tree(int64_t n) {
  Random random(n);
  std::vector<W> weights(n);
  for (W& weight : weights) weight = static_cast<W>(random.below(3));
  SumTree<W> tree{};
  tree.n = n;
  int64_t nodes = 0;
  for (int64_t width = n;;) {
    const int64_t padded = (width + 3) / 4 * 4;
    tree.level_at[tree.levels++] = nodes;
    nodes += padded;
    if (padded == 4) break;
    width = padded / 4;
  }
  std::vector<W> first = weights;
  first.resize(nodes, 0);
  const DeviceArray<W> sums(first);
  tree.sums = sums.data();
  const std::string name = named("tree", {n});
  RUN(Tree<W>::build(&tree, nullptr));
  expect_tree(tree, weights, name);
  RUN(Tree<W>::modify(&tree, nullptr, nullptr, 0, nullptr));
  std::vector<int64_t> items;
  std::vector<W> changed;
  for (int64_t i = 0; i < n; i += 3) {
    items.push_back(i);
    changed.push_back(static_cast<W>(random.below(4)));
    weights[i] = changed.back();
  }
  const DeviceArray<int64_t> d_items(items);
  const DeviceArray<W> d_changed(changed);
  RUN(Tree<W>::modify(&tree, d_items.data(), d_changed.data(),
                      static_cast<int64_t>(items.size()), nullptr));
  expect_tree(tree, weights, name + " changed");
  if constexpr (std::is_same_v<W, int64_t>) expect_ranges(tree, weights, name);
}

DRIVER_CASE(tree) {
  for (const int64_t n : {1, 4, 5, 16, 17, 3000}) {
    run_tree<int64_t>(n);
    run_tree<double>(n);
  }
}

DRIVER_CASE(keep_rows) {
  std::vector<std::vector<int64_t>> all = kRowLengths;
  all.push_back({70000, 2});  // a row long enough to draw 64 bits for each edge
  for (const auto& lengths : all) {
    for (const int share : {0, 1, 2}) {
      const std::vector<int64_t> indptr = offsets_of(lengths);
      std::vector<int64_t> needed;
      for (const int64_t length : lengths) needed.push_back(share * length / 2);
      std::vector<int32_t> eid(indptr.back());
      std::iota(eid.rbegin(), eid.rend(), 0);
      const DeviceArray<int64_t> d_indptr(indptr), d_needed(needed);
      const DeviceArray<int32_t> d_eid(eid);
      const DeviceArray<uint8_t> keep(eid.size());
      const KeepRows rows{d_indptr.data(), d_eid.data(), d_needed.data(), 3,
                          static_cast<int64_t>(lengths.size()),
                          reinterpret_cast<bool*>(keep.data())};
      RUN(dgb_keep_rows(&rows, nullptr));
      const std::vector<uint8_t> kept = keep.host();
      std::vector<int64_t> counts;
      for (std::size_t r = 0; r < lengths.size(); ++r) {
        counts.push_back(0);
        for (int64_t p = indptr[r]; p < indptr[r + 1]; ++p) counts.back() += kept[eid[p]];
      }
      expect_equal(counts, needed, named("keep_rows: rows, share", {rows.vertices, share}));
    }
  }
}

DRIVER_CASE(row_numbers) {
  for (const int64_t n : {0, 1, 300}) {
    const DeviceArray<double> uniforms(n);
    RUN(dgb_row_uniforms(8, n, uniforms.data(), nullptr));
    for (const double u : uniforms.host()) expect(u >= 0 && u < 1, "row_uniforms: not in [0, 1)");
  }
  for (const auto& lengths : kRowLengths) {
    const std::vector<int64_t> indptr = offsets_of(lengths);
    std::vector<double> t(indptr.back()), bounds;
    std::vector<int64_t> vertices, right;
    for (std::size_t r = 0; r < lengths.size(); ++r) {
      for (int64_t p = indptr[r]; p < indptr[r + 1]; ++p) {
        t[p] = static_cast<double>((p - indptr[r]) / 2);  // two of every time
      }
      for (const double bound : {-1.0, 0.5, 3.0, 1e9}) {
        vertices.push_back(static_cast<int64_t>(r));
        bounds.push_back(bound);
        right.push_back(std::count_if(t.begin() + indptr[r], t.begin() + indptr[r + 1],
                                      [&](double time) { return time < bound; }));
      }
    }
    const DeviceArray<int64_t> d_indptr(indptr), d_vertices(vertices), counts(right.size());
    const DeviceArray<double> d_t(t), d_bounds(bounds);
    RUN(dgb_count_before(d_indptr.data(), d_t.data(), d_vertices.data(), d_bounds.data(),
                         static_cast<int64_t>(right.size()), counts.data(), nullptr));
    const auto rows = static_cast<int64_t>(lengths.size());
    expect_equal(counts.host(), right, named("count_before", {rows}));
  }
}

// `memory`: 0 all in shared memory, 1 slots outside, 2 the tree too, 3 with sums of 64 bits.
void run_frontier(const HostCsr& csr, int64_t frontier, int64_t draws, bool replacement,
                  bool by_degree, int memory) {
  std::vector<int32_t> occupied;
  for (int64_t v = 0; v < csr.rows(); ++v) {
    if (csr.indptr[v + 1] > csr.indptr[v]) occupied.push_back(static_cast<int32_t>(v));
  }
  const int64_t count = 3, words = (csr.rows() + 31) / 32;
  const DeviceArray<int64_t> indptr(csr.indptr), reseeded(count);
  const DeviceArray<int32_t> dst(csr.indices), d_occupied(occupied), overflow(count);
  const DeviceArray<uint32_t> members(count * words, 0);
  FrontierWalk w{};
  w.indptr = indptr.data();
  w.dst = dst.data();
  w.occupied = d_occupied.data();
  w.vertices = csr.rows();
  w.some = static_cast<int64_t>(occupied.size());
  w.frontier = frontier;
  w.draws = draws;
  w.count = count;
  w.replacement = replacement;
  w.by_degree = by_degree;
  w.seed = 11;
  for (int64_t width = frontier;;) {
    const int64_t padded = (width + 3) / 4 * 4;
    w.level_at[w.levels++] = w.nodes;
    w.nodes += padded;
    if (padded == 4) break;
    width = padded / 4;
  }
  const DeviceArray<FrontierSlot> slots(memory > 0 ? count * frontier : 0);
  const DeviceArray<uint32_t> trees(memory == 2 ? count * w.nodes : 0);
  const DeviceArray<uint64_t> wide_trees(memory == 3 ? count * w.nodes : 0);
  w.members = members.data();
  w.words = words;
  w.slots = slots.data();
  w.trees = memory == 3 ? static_cast<void*>(wide_trees.data()) : trees.data();
  w.reseeded = reseeded.data();
  w.overflow = overflow.data();
  RUN(dgb_walk_frontier(&w, memory == 3, nullptr));
  const std::string name = named("walk_frontier: vertices, frontier, draws, memory",
                                 {csr.rows(), frontier, draws, memory});
  expect_equal(overflow.host(), std::vector<int32_t>(count, 0), name + ": overflow");
  const std::vector<uint32_t> bits = members.host();
  for (int64_t g = 0; g < count; ++g) {
    int64_t drawn = 0;
    for (int64_t v = 0; v < 32 * words; ++v) {
      const bool is_member = (bits[g * words + v / 32] >> (v % 32) & 1u) != 0;
      expect(!is_member || v < csr.rows(), name + ": a member is no vertex");
      drawn += is_member;
    }
    const bool any = w.some > 0 && draws > 0;
    expect(any ? drawn > 0 && drawn <= 2 * draws : drawn == 0, name + ": members");
  }
}

DRIVER_CASE(walk_frontier) {
  Random random(12);
  const HostCsr graph = random_csr({0, 3, 40, 1, 12, 0, 257, 2, 70, 5, 0, 9}, 12 * 25, random);
  HostCsr inside = graph;
  for (int32_t& column : inside.indices) column %= 12;
  for (const int memory : {0, 1, 2, 3}) {
    for (const int64_t frontier : {1, 5, 12}) {
      run_frontier(inside, frontier, 0, false, true, memory);
      run_frontier(inside, frontier, 40, true, false, memory);
      run_frontier(inside, frontier, 40, false, true, memory);
    }
    run_frontier(random_csr({0, 0, 0}, 3, random), 2, 5, false, true, memory);
  }
}

}  // namespace
}  // namespace dgbench::driver
