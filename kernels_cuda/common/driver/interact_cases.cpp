// Sums over partners, products of rows, label propagation, ranks, and the cache of feature rows.
#include <algorithm>
#include <numeric>

#include "common/driver/driver.hpp"
#include "interact/cuda_launchers.h"
#include "label_propagation/cuda_launchers.h"
#include "ranking/cuda_launchers.h"
#include "row_cache/cuda_launchers.h"

namespace dgbench::driver {
namespace {

int sums(const InteractSums<float>& s) { return dgb_interact_sums_float(&s, nullptr); }
int sums(const InteractSums<double>& s) { return dgb_interact_sums_double(&s, nullptr); }
int dots(const InteractDots<float>& d) { return dgb_interact_dots_float(&d, nullptr); }
int dots(const InteractDots<double>& d) { return dgb_interact_dots_double(&d, nullptr); }

template <class T>
void run_interact(const std::vector<int64_t>& lengths, int64_t width, bool last) {
  Random random(lengths.size() + static_cast<uint64_t>(width));
  const std::vector<int64_t> offsets = offsets_of(lengths);
  const int64_t edges = offsets.back(), rows = static_cast<int64_t>(lengths.size());
  std::vector<int64_t> order(edges), other, row_of(edges);
  std::iota(order.begin(), order.end(), 0);
  for (int64_t i = edges - 1; i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
  for (int64_t e = 0; e < edges; ++e) other.push_back(random.below(kColumns));
  const std::vector<T> weight = random.reals<T>(edges), x = random.reals<T>(kColumns * width);
  std::vector<double> right(rows * width), products(edges);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t p = offsets[r]; p < offsets[r + 1]; ++p) {
      row_of[order[p]] = r;
      if (last && p + 1 < offsets[r + 1]) continue;
      for (int64_t c = 0; c < width; ++c) {
        const double scale = last ? 1.0 : static_cast<double>(weight[order[p]]);
        right[r * width + c] += scale * x[other[order[p]] * width + c];
      }
    }
  }
  const DeviceArray<int64_t> d_offsets(offsets), d_order(order), d_other(other), d_rows(row_of);
  const DeviceArray<T> d_weight(weight), d_x(x), out(rows * width);
  const DeviceArray<T> partial(2 * ((edges + kPieceEdges - 1) / kPieceEdges) * width);
  const InteractSums<T> s{d_offsets.data(), d_order.data(), d_other.data(),
                          last ? nullptr : d_weight.data(), d_x.data(), out.data(),
                          partial.data(), rows, edges, width, last};
  RUN(sums(s));
  const std::string name = named("rows, width, last", {rows, width, last});
  expect_close(out.host(), right, "interact_sums, " + name);

  const std::vector<T> left = random.reals<T>(rows * width);
  for (int64_t e = 0; e < edges; ++e) {
    for (int64_t c = 0; c < width; ++c) {
      products[e] += static_cast<double>(left[row_of[e] * width + c]) * x[other[e] * width + c];
    }
  }
  const DeviceArray<T> d_left(left), found(edges);
  const InteractDots<T> d{d_rows.data(), d_other.data(), d_left.data(), d_x.data(), found.data(),
                          edges, width};
  RUN(dots(d));
  expect_close(found.host(), products, "interact_dots, " + name);
}

DRIVER_CASE(interact) {
  // The last has a row of more pieces than one group adds up.
  std::vector<std::vector<int64_t>> all = kRowLengths;
  all.push_back({1, 5000, 64, 65});
  for (const auto& lengths : all) {
    for (const int width : kWidths) {
      for (const bool last : {false, true}) {
        run_interact<float>(lengths, width, last);
        run_interact<double>(lengths, width, last);
      }
    }
  }
}

// Vertex v of a symmetric graph: two neighbours on a ring, and vertex 0 knows all others.
HostCsr star_on_ring(int64_t vertices) {
  HostCsr csr;
  csr.columns = vertices;
  for (int64_t v = 0; v < vertices; ++v) {
    std::vector<int32_t> row;
    for (int64_t u = 0; u < vertices; ++u) {
      const int64_t distance = (u - v + vertices) % vertices;
      const bool near = distance == 1 || distance == vertices - 1;
      if (u != v && (near || v == 0 || u == 0)) row.push_back(static_cast<int32_t>(u));
    }
    csr.indices.insert(csr.indices.end(), row.begin(), row.end());
    csr.indptr.push_back(csr.nnz());
  }
  return csr;
}

void run_labels(int64_t vertices, int64_t cap, uint32_t rounds, int64_t block) {
  const HostCsr csr = star_on_ring(vertices);
  std::vector<int32_t> labels(vertices);
  std::iota(labels.begin(), labels.end(), 0);
  const DeviceArray<int64_t> indptr(csr.indptr), loads(vertices, 1), arrivals(vertices, 0),
      counts(3, 0);
  const DeviceArray<int32_t> indices(csr.indices), d_labels(labels);
  const DeviceArray<uint8_t> active(vertices, 1);
  const int64_t most = std::min(block, vertices);
  const DeviceArray<int32_t> wished(most), verdicts(most), contested(2 * most);
  const DeviceArray<int64_t> gains(most);
  LabelSweep s{};
  s.indptr = indptr.data();
  s.indices = indices.data();
  s.labels = d_labels.data();
  s.loads = loads.data();
  s.active = active.data();
  s.vertices = vertices;
  s.cap = cap;
  s.salt = 7;
  s.rounds = rounds;
  s.block = block;
  s.wished = wished.data();
  s.gains = gains.data();
  s.verdicts = verdicts.data();
  s.contested = contested.data();
  s.arrivals = arrivals.data();
  s.counts = counts.data();
  const std::string name = named("label_sweep: vertices, cap, rounds, block",
                                 {vertices, cap, rounds, block});
  for (int sweep = 0; sweep < 2; ++sweep) {
    RUN(dgb_label_sweep(&s, nullptr));
    std::vector<int64_t> members(vertices, 0);
    const std::vector<int32_t> now = d_labels.host();
    for (const int32_t label : now) {
      expect(label >= 0 && label < vertices, name + ": a label is no vertex");
      if (label >= 0 && label < vertices) ++members[label];
    }
    expect_equal(loads.host(), members, name + ": loads");
    expect_equal(arrivals.host(), std::vector<int64_t>(vertices, 0), name + ": arrivals");
    for (const int64_t load : members) expect(load <= cap, name + ": a label is above its cap");
    const std::vector<int64_t> said = counts.host();
    expect(said[0] <= said[1] && said[2] == 0, name + ": counts");
    if (sweep == 0) expect(said[1] >= vertices, name + ": not all were looked at");
    expect(cap == 1 || vertices < 3 || said[0] > 0, name + ": nobody moved");
  }
}

DRIVER_CASE(label_sweep) {
  run_labels(1, 1, 1, 1);
  run_labels(40, 1, 2, 16);  // full from the start
  run_labels(40, 7, 2, 16);
  run_labels(300, 20, 4, 1000);
  run_labels(300, 300, 1, 300);
  run_labels(2500, 3, 1, 4096);  // more contested places than a block of threads sorts at once
  // More labels at a hub than the table of a block of threads holds.
  run_labels(1500, 40, 1, 1024);
}

DRIVER_CASE(row_cache) {
  Random random(5);
  constexpr int64_t kIds = 700, kKept = 90;
  std::vector<int64_t> sorted;
  std::vector<int32_t> slot_of, dense(kIds, -1);
  for (int64_t i = 0; i < kKept; ++i) {
    sorted.push_back(i * 7 + 3);
    slot_of.push_back(static_cast<int32_t>(kKept - 1 - i));
    dense[sorted.back()] = slot_of.back();
  }
  for (const int64_t count : {0, 1, 257}) {
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < count; ++i) ids.push_back(random.below(kIds + 20) - 10);
    std::vector<int32_t> right;
    for (const int64_t id : ids) right.push_back(id < 0 || id >= kIds ? -1 : dense[id]);
    const DeviceArray<int64_t> d_ids(ids), d_sorted(sorted);
    const DeviceArray<int32_t> d_dense(dense), d_slots(slot_of);
    const DeviceArray<int32_t> slots(count);
    for (const bool by_list : {false, true}) {
      const LookUp look_up{d_ids.data(),   by_list ? nullptr : d_dense.data(), d_sorted.data(),
                           d_slots.data(), slots.data(), count, kIds, kKept};
      RUN(dgb_look_up(&look_up, nullptr));
      expect_equal(slots.host(), right, named("look_up: ids, by list", {count, by_list}));
    }
    std::vector<int64_t> misses;
    std::vector<int32_t> place = right;
    for (int32_t& at : place) {
      if (at >= 0) continue;
      at = -1 - static_cast<int32_t>(misses.size());
      misses.push_back(random.below(kIds));
    }
    for (const int dim : kWidths) {
      const std::vector<float> kept = random.reals(kKept * dim), source = random.reals(kIds * dim);
      std::vector<float> rows;
      for (const int32_t at : place) {
        const float* const from =
            at >= 0 ? kept.data() + at * dim : source.data() + misses[-1 - at] * dim;
        rows.insert(rows.end(), from, from + dim);
      }
      const DeviceArray<int32_t> d_place(place);
      const DeviceArray<int64_t> d_misses(misses);
      const DeviceArray<float> d_kept(kept), d_source(source), out(rows.size());
      const int64_t none = 0;
      // Without misses the list has no address, and must not count as absent.
      const GatherRows<1> gather{d_place.data(),
                                 misses.empty() ? &none : d_misses.data(),
                                 d_kept.data(), d_source.data(), out.data(), count, dim};
      RUN(dgb_gather_rows(&gather, nullptr));
      expect_equal(out.host(), rows, named("gather_rows: rows, width", {count, dim}));
    }
  }
}

int ranked(const RankRows<float>& r) { return dgb_rank_columns_float(&r, nullptr); }
int ranked(const RankRows<double>& r) { return dgb_rank_columns_double(&r, nullptr); }

template <class T>
void run_ranks(int64_t rows, int64_t width) {
  Random random(static_cast<uint64_t>(rows * width));
  std::vector<T> scores;
  std::vector<int64_t> column, offsets{0}, skip, above(rows), equal(rows);
  for (int64_t i = 0; i < rows * width; ++i) scores.push_back(static_cast<T>(random.below(4)));
  for (int64_t r = 0; r < rows; ++r) {
    column.push_back(random.below(width));
    for (int64_t c = 0; c < width; ++c) {
      if (c == column[r]) continue;
      if (random.below(3) == 0) {
        skip.push_back(c);
        continue;
      }
      above[r] += scores[r * width + c] > scores[r * width + column[r]];
      equal[r] += scores[r * width + c] == scores[r * width + column[r]];
    }
    offsets.push_back(static_cast<int64_t>(skip.size()));
  }
  const DeviceArray<T> d_scores(scores);
  const DeviceArray<int64_t> d_column(column), d_offsets(offsets), d_skip(skip);
  const DeviceArray<int64_t> d_above(rows), d_equal(rows);
  const RankRows<T> ranks{d_scores.data(), d_column.data(), d_offsets.data(), d_skip.data(), rows,
                          width,           d_above.data(),  d_equal.data()};
  RUN(ranked(ranks));
  const std::string name = named("rows, width", {rows, width});
  expect_equal(d_above.host(), above, "rank_columns above, " + name);
  expect_equal(d_equal.host(), equal, "rank_columns equal, " + name);
}

DRIVER_CASE(ranks) {
  for (const int64_t rows : {1, 7, 40}) {
    for (const int64_t width : {1, 31, 32, 65}) {
      run_ranks<float>(rows, width);
      run_ranks<double>(rows, width);
    }
  }
}

}  // namespace
}  // namespace dgbench::driver
