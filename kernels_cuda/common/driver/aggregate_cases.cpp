// Aggregation and its transposed form by parts, and the baselines' kernels.
#include "aggregate/cuda_launchers.h"
#include "common/driver/driver.hpp"
#include "variants/cuda_launchers.h"

namespace dgbench::driver {
namespace {

// Shared entries, those of single snapshots, and what scales them.
struct Parts {
  HostCsr over, ex;
  std::vector<uint32_t> entries;
  std::vector<float> over_values, ex_values, row_scale, col_scale;
  int snapshots, features, shift = 0;

  Parts(const std::vector<int64_t>& lengths, int snapshots, int features, Random& random)
      : over(random_csr(lengths, kColumns, random)),
        ex(random_csr(lengths, kColumns, random)),
        snapshots(snapshots),
        features(features) {
    while ((1 << shift) < snapshots) ++shift;
    for (const int32_t column : ex.indices) {
      entries.push_back(static_cast<uint32_t>(column) << shift |
                        static_cast<uint32_t>(random.below(snapshots)));
    }
    over_values = random.reals(over.indices.size() * snapshots);
    ex_values = random.reals(ex.indices.size());
    row_scale = random.reals(over.rows() * snapshots);
    col_scale = random.reals(kColumns * snapshots);
  }

  // visit(row, column, snapshot, weight) for every entry, with the scales and the loops.
  template <class Visit>
  void each(bool loop, Visit&& visit) const {
    const auto scaled = [&](int64_t r, int64_t c, int s, double weight) {
      visit(r, c, s, weight * row_scale[r * snapshots + s] * col_scale[c * snapshots + s]);
    };
    for (int64_t r = 0; r < over.rows(); ++r) {
      for (int64_t p = over.indptr[r]; p < over.indptr[r + 1]; ++p) {
        for (int s = 0; s < snapshots; ++s) {
          scaled(r, over.indices[p], s, over_values[p * snapshots + s]);
        }
      }
      for (int64_t p = ex.indptr[r]; p < ex.indptr[r + 1]; ++p) {
        const auto s = static_cast<int>(entries[p] & ((1u << shift) - 1u));
        scaled(r, entries[p] >> shift, s, ex_values[p]);
      }
      for (int s = 0; loop && s < snapshots; ++s) scaled(r, r, s, 1.0);
    }
  }
};

void run_parts(const std::vector<int64_t>& lengths, int snapshots, int features, int form) {
  Random random(lengths.size() * 1000 + features);
  const Parts host(lengths, snapshots, features, random);
  const int64_t rows = host.over.rows(), d = int64_t{snapshots} * features;
  const DeviceArray<int64_t> over_indptr(host.over.indptr), ex_indptr(host.ex.indptr);
  const DeviceArray<int32_t> over_indices(host.over.indices);
  const DeviceArray<uint32_t> entries(host.entries);
  const DeviceArray<float> over_values(host.over_values), ex_values(host.ex_values);
  const DeviceArray<float> row_scale(host.row_scale), col_scale(host.col_scale);
  AggregateArgs a{};
  a.over_indptr = over_indptr.data();
  a.over_indices = over_indices.data();
  a.over_values = over_values.data();
  a.per_snapshot = snapshots > 1;
  a.ex_indptr = ex_indptr.data();
  a.ex_entries = entries.data();
  a.ex_values = ex_values.data();
  a.shift = host.shift;
  a.row_scale = row_scale.data();
  a.col_scale = col_scale.data();
  a.rows = rows;
  a.columns = kColumns;
  a.snapshots = snapshots;
  a.features = features;
  a.self_loop = form != 1;
  a.entries = host.over.nnz() + host.ex.nnz();
  const DeviceArray<int32_t> table(static_cast<std::size_t>(dgb_heavy_size(rows, a.entries)));
  const DeviceArray<float> partials(static_cast<std::size_t>(dgb_heavy_slots(rows, a.entries) * d));
  if (form > 0) {
    RUN(dgb_list_heavy(a.over_indptr, a.ex_indptr, rows, a.entries, table.data(), nullptr));
    a.heavy = table.data();
    a.partials = partials.data();
    a.form = form == 2 ? kOwnerAlone : kBySegments;
  }
  const std::string name =
      named("rows, snapshots, features, form", {rows, snapshots, features, form});

  const std::vector<float> x = random.reals(kColumns * d);
  const DeviceArray<float> source(x), y(static_cast<std::size_t>(rows * d));
  a.x = source.data();
  a.y = y.data();
  RUN(dgb_aggregate(&a, nullptr));
  std::vector<double> right(rows * d);
  host.each(a.self_loop, [&](int64_t r, int64_t c, int s, double weight) {
    for (int f = 0; f < features; ++f) {
      right[r * d + s * features + f] += weight * x[c * d + s * features + f];
    }
  });
  expect_close(y.host(), right, "aggregate, " + name);

  const std::vector<float> up = random.reals(rows * d);
  const DeviceArray<float> from(up), to(static_cast<std::size_t>(kColumns * d));
  a.x = from.data();
  a.y = to.data();
  RUN(dgb_scatter(&a, nullptr));
  right.assign(kColumns * d, 0.0);
  host.each(a.self_loop, [&](int64_t r, int64_t c, int s, double weight) {
    for (int f = 0; f < features; ++f) {
      right[c * d + s * features + f] += weight * up[r * d + s * features + f];
    }
  });
  expect_close(to.host(), right, "scatter, " + name);
}

// One list of narrow rows by tiles, with and without weights and scales.
void run_tiles(const std::vector<int64_t>& lengths, int d, bool weighted) {
  Random random(lengths.size() * 100 + d);
  const HostCsr csr = random_csr(lengths, kColumns, random);
  const int64_t rows = csr.rows(), entries = csr.nnz();
  const std::vector<float> weights = random.reals(entries), scale = random.reals(kColumns);
  const std::vector<float> x = random.reals(kColumns * d);
  const DeviceArray<int64_t> indptr(csr.indptr);
  const DeviceArray<int32_t> indices(csr.indices);
  const DeviceArray<float> values(weights), scales(scale), source(x);
  const DeviceArray<float> y(static_cast<std::size_t>(rows * d));
  const DeviceArray<int32_t> table(static_cast<std::size_t>(dgb_heavy_size(rows, entries)));
  const DeviceArray<float> partials(
      static_cast<std::size_t>(dgb_heavy_slots(rows, entries) * d));
  RUN(dgb_list_heavy(indptr.data(), nullptr, rows, entries, table.data(), nullptr));
  AggregateArgs a{};
  a.over_indptr = indptr.data();
  a.over_indices = indices.data();
  a.over_values = weighted ? values.data() : nullptr;
  a.col_scale = weighted ? scales.data() : nullptr;
  a.x = source.data();
  a.y = y.data();
  a.rows = rows;
  a.columns = kColumns;
  a.snapshots = 1;
  a.features = d;
  a.self_loop = 1;
  a.entries = entries;
  a.heavy = table.data();
  a.tiles = a.heavy + dgb_tiles_at(entries);
  a.partials = partials.data();
  RUN(dgb_aggregate_tiles(&a, nullptr));
  std::vector<double> right(rows * d);
  for (int64_t r = 0; r < rows; ++r) {
    const auto add = [&](int64_t column, double weight) {
      if (weighted) weight *= scale[column];
      for (int c = 0; c < d; ++c) right[r * d + c] += weight * x[column * d + c];
    };
    for (int64_t p = csr.indptr[r]; p < csr.indptr[r + 1]; ++p) {
      add(csr.indices[p], weighted ? weights[p] : 1.0);
    }
    add(r, 1.0);
  }
  expect_close(y.host(), right, "aggregate_tiles, " + named("rows, width, weighted",
                                                            {rows, d, weighted}));
}

// A union of snapshots, each entry of which says by bits which hold it.
void run_union(const std::vector<int64_t>& lengths, int snapshots, int features) {
  Random random(lengths.size() * 10 + snapshots);
  const HostCsr csr = random_csr(lengths, kColumns, random);
  const int64_t rows = csr.rows(), d = int64_t{snapshots} * features;
  std::vector<uint32_t> held;
  for (int64_t p = 0; p < csr.nnz(); ++p) {
    held.push_back(static_cast<uint32_t>(random.below(int64_t{1} << snapshots)));
  }
  const std::vector<float> x = random.reals(kColumns * d);
  const DeviceArray<int64_t> indptr(csr.indptr);
  const DeviceArray<int32_t> indices(csr.indices);
  const DeviceArray<uint32_t> bits(held);
  const DeviceArray<float> source(x), y(static_cast<std::size_t>(rows * d));
  AggregateArgs a{};
  a.over_indptr = indptr.data();
  a.over_indices = indices.data();
  a.over_bits = bits.data();
  a.x = source.data();
  a.y = y.data();
  a.rows = rows;
  a.columns = kColumns;
  a.snapshots = snapshots;
  a.features = features;
  a.entries = csr.nnz();
  RUN(dgb_aggregate(&a, nullptr));
  std::vector<double> right(rows * d);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t p = csr.indptr[r]; p < csr.indptr[r + 1]; ++p) {
      for (int64_t c = 0; c < d; ++c) {
        if (held[p] >> (c / features) & 1u) right[r * d + c] += x[csr.indices[p] * d + c];
      }
    }
  }
  expect_close(y.host(), right, named("union, rows, snapshots, features",
                                      {rows, snapshots, features}));
}

// Slices of at most `cap` entries.
struct Slices {
  std::vector<int32_t> rows;
  std::vector<int64_t> offsets;
  Slices(const HostCsr& csr, int64_t cap) {
    for (int64_t r = 0; r < csr.rows(); ++r) {
      for (int64_t p = csr.indptr[r]; p < csr.indptr[r + 1]; p += cap) {
        rows.push_back(static_cast<int32_t>(r));
        offsets.push_back(p);
      }
    }
    offsets.push_back(csr.nnz());
  }
};

void run_sliced(const std::vector<int64_t>& lengths, int64_t cap, int d, int groups, int vector) {
  Random random(lengths.size() + d);
  const HostCsr csr = random_csr(lengths, kColumns, random);
  const Slices slices(csr, cap);
  const std::vector<float> weights = random.reals(csr.indices.size());
  const std::vector<float> x = random.reals(kColumns * d), up = random.reals(csr.rows() * d);
  const DeviceArray<int32_t> slice_rows(slices.rows), indices(csr.indices);
  const DeviceArray<int64_t> offsets(slices.offsets);
  const DeviceArray<float> values(weights), source(x), from(up);
  const DeviceArray<float> y(up.size(), 0.0f), to(x.size(), 0.0f);
  SliceWarp warp{slice_rows.data(), offsets.data(), indices.data(), values.data(), 1,
                 static_cast<int64_t>(slices.rows.size()), source.data(), d, y.data(), d, d,
                 groups};
  const DeviceArray<int64_t> clocks(
      3 * static_cast<std::size_t>(dgb_sliced_warp_count(&warp, vector)));
  RUN(dgb_aggregate_sliced(&warp, vector, clocks.data(), nullptr));
  warp.x = from.data();
  warp.y = to.data();
  RUN(dgb_scatter_sliced(&warp, vector, nullptr));
  std::vector<double> right(up.size()), right_to(x.size());
  for (int64_t r = 0; r < csr.rows(); ++r) {
    for (int64_t p = csr.indptr[r]; p < csr.indptr[r + 1]; ++p) {
      for (int c = 0; c < d; ++c) {
        const int64_t column = csr.indices[p];
        right[r * d + c] += double{weights[p]} * x[column * d + c];
        right_to[column * d + c] += double{weights[p]} * up[r * d + c];
      }
    }
  }
  const std::string name = named("rows, cap, width, groups, vector",
                                 {csr.rows(), cap, d, groups, vector});
  expect_close(y.host(), right, "aggregate_sliced, " + name);
  expect_close(to.host(), right_to, "scatter_sliced, " + name);
  for (const int64_t clock : clocks.host()) expect(clock >= 0, "a clock is not set, " + name);

  const DeviceArray<int64_t> indptr(csr.indptr);
  const DeviceArray<float> again(up.size());
  const DeviceArray<int64_t> warps(
      3 * static_cast<std::size_t>(dgb_gespmm_warp_count(csr.rows(), d, csr.nnz())));
  RUN(dgb_spmm_gespmm(indptr.data(), indices.data(), values.data(), csr.rows(), csr.nnz(), d,
                      source.data(), again.data(), warps.data(), nullptr));
  expect_close(again.host(), right, "spmm_gespmm, " + name);
}

DRIVER_CASE(aggregate) {
  for (const auto& lengths : kRowLengths) {
    for (const int features : kWidths) {
      for (const int form : {0, 1, 2}) run_parts(lengths, 1, features, form);
    }
    for (const int features : {1, 3, 32}) run_parts(lengths, 3, features, 1);
  }
}

DRIVER_CASE(tiles) {
  std::vector<std::vector<int64_t>> all = kRowLengths;
  all.push_back({1399, 1399, 1399, 700, 0, 1399, 1399});
  for (const auto& lengths : all) {
    for (const int d : {1, 2, 3, 8, 16}) {
      for (const bool weighted : {false, true}) run_tiles(lengths, d, weighted);
    }
  }
}

DRIVER_CASE(union_bits) {
  for (const auto& lengths : kRowLengths) {
    for (const int snapshots : {2, 5, 31}) {
      for (const int features : {1, 4}) run_union(lengths, snapshots, features);
    }
  }
}

DRIVER_CASE(sliced) {
  for (const auto& lengths : kRowLengths) {
    for (const int64_t cap : {1, 32, 100}) {
      for (const int d : kWidths) run_sliced(lengths, cap, d, d < 32 ? std::min(4, 32 / d) : 1, 1);
    }
    run_sliced(lengths, 32, 32, 1, 2);
    run_sliced(lengths, 32, 100, 1, 4);
  }
}

}  // namespace
}  // namespace dgbench::driver
