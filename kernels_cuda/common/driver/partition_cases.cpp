// Checks, slices, overlaps and unions of snapshots, differences, topology that arrives in pieces.
#include <algorithm>
#include <map>
#include <numeric>

#include "common/driver/driver.hpp"
#include "csr/cuda_launchers.h"
#include "difference/cuda_launchers.h"
#include "overlap/cuda_launchers.h"
#include "slices/cuda_launchers.h"

namespace dgbench::driver {
namespace {

void run_check(const HostCsr& csr, int64_t columns, const std::vector<int64_t>& right) {
  const DeviceArray<int64_t> indptr(csr.indptr), found(3, -1);
  const DeviceArray<int32_t> indices(csr.indices);
  RUN(dgb_check_csr(indptr.data(), indices.data(), csr.rows(), csr.nnz(), columns, found.data(),
                    nullptr));
  expect_equal(found.host(), right, named("check_csr", {csr.rows(), columns}));
}

DRIVER_CASE(check_csr) {
  Random random(1);
  for (const auto& lengths : kRowLengths) {
    run_check(random_csr(lengths, kColumns, random), kColumns, {-1, -1, -1});
  }
  HostCsr csr = random_csr({0, 2, 0}, kColumns, random);
  run_check(csr, csr.indices[1], {-1, 1, -1});
  std::swap(csr.indices[0], csr.indices[1]);
  run_check(csr, kColumns, {-1, -1, 1});
  csr.indptr = {0, 1, 0, 2};
  run_check(csr, kColumns, {1, -1, 2});
}

DRIVER_CASE(slices) {
  Random random(2);
  for (const auto& lengths : kRowLengths) {
    for (const int64_t cap : {1, 3, 32, 5000}) {
      const HostCsr csr = random_csr(lengths, kColumns, random);
      std::vector<int64_t> counts, begins;
      std::vector<int32_t> rows;
      for (int64_t r = 0; r < csr.rows(); ++r) {
        counts.push_back((lengths[r] + cap - 1) / cap);
        for (int64_t p = csr.indptr[r]; p < csr.indptr[r + 1]; p += cap) {
          rows.push_back(static_cast<int32_t>(r));
          begins.push_back(p);
        }
      }
      const DeviceArray<int64_t> indptr(csr.indptr), found(counts.size());
      RUN(dgb_count_slices(indptr.data(), csr.rows(), cap, found.data(), nullptr));
      expect_equal(found.host(), counts, named("count_slices", {csr.rows(), cap}));
      const DeviceArray<int64_t> first(offsets_of(counts));
      const auto slices = static_cast<int64_t>(rows.size());
      begins.push_back(csr.nnz());
      // The last offset is the caller's.
      const DeviceArray<int64_t> offsets(begins.size(), csr.nnz());
      const DeviceArray<int32_t> row_indices(rows.size());
      RUN(dgb_fill_slices(indptr.data(), first.data(), csr.rows(), cap, slices,
                          row_indices.data(), offsets.data(), nullptr));
      expect_equal(row_indices.host(), rows, named("fill_slices rows", {csr.rows(), cap}));
      expect_equal(offsets.host(), begins, named("fill_slices offsets", {csr.rows(), cap}));
    }
  }
}

// Snapshots that share about half of their entries, on the host and on the device.
struct Group {
  std::vector<HostCsr> hosts;
  std::vector<std::vector<float>> weights;
  std::vector<DeviceArray<int64_t>*> indptr;
  std::vector<DeviceArray<int32_t>*> indices;
  std::vector<DeviceArray<float>*> values;
  SnapshotRows rows{};

  Group(const std::vector<int64_t>& lengths, int count, Random& random) {
    const HostCsr base = random_csr(lengths, kColumns, random);
    rows.count = count;
    for (int s = 0; s < count; ++s) {
      HostCsr one;
      for (int64_t r = 0; r < base.rows(); ++r) {
        for (int64_t p = base.indptr[r]; p < base.indptr[r + 1]; ++p) {
          if (random.below(6) > 0) one.indices.push_back(base.indices[p]);
        }
        one.indptr.push_back(one.nnz());
      }
      hosts.push_back(one);
      weights.push_back(random.reals(one.indices.size()));
      indptr.push_back(new DeviceArray<int64_t>(one.indptr));
      indices.push_back(new DeviceArray<int32_t>(one.indices));
      values.push_back(new DeviceArray<float>(weights.back()));
      rows.indptr[s] = indptr[s]->data();
      rows.indices[s] = indices[s]->data();
    }
  }
  ~Group() {
    for (std::size_t s = 0; s < hosts.size(); ++s) {
      delete indptr[s];
      delete indices[s];
      delete values[s];
    }
  }
};

void run_split(const std::vector<int64_t>& lengths, int count, int64_t cap, bool tiled) {
  Random random(lengths.size() + count);
  Group group(lengths, count, random);
  const int64_t rows = group.hosts[0].rows();
  const std::string name = named("rows, snapshots, cap, tiled", {rows, count, cap, tiled});
  int64_t entries = 0;
  for (const HostCsr& host : group.hosts) entries += host.nnz();
  const DeviceArray<int32_t> table(static_cast<std::size_t>(dgb_long_rows_size(entries, count)));
  int32_t* const long_rows = tiled ? table.data() : nullptr;
  const DeviceArray<int64_t> counts(rows);
  const CountShared count_shared{group.rows, cap, counts.data()};
  RUN(dgb_count_shared(&count_shared, rows, entries, long_rows, nullptr));
  const std::vector<int64_t> over = offsets_of(counts.host());
  const DeviceArray<int64_t> over_indptr(over);
  const DeviceArray<int32_t> over_indices(over.back());
  const DeviceArray<float> over_values(over.back() * count);
  FillSplit fill{};
  fill.rows = group.rows;
  fill.slice_cap = cap;
  fill.over_indptr = over_indptr.data();
  fill.weighted = true;
  fill.over_indices = over_indices.data();
  fill.over_values = over_values.data();
  std::vector<DeviceArray<int32_t>*> ex_indices;
  std::vector<DeviceArray<float>*> ex_values;
  for (int s = 0; s < count; ++s) {
    const std::size_t left = group.hosts[s].indices.size() - over.back();
    ex_indices.push_back(new DeviceArray<int32_t>(left));
    ex_values.push_back(new DeviceArray<float>(left));
    fill.values[s] = group.values[s]->data();
    fill.exclusive_indices[s] = ex_indices[s]->data();
    fill.exclusive_values[s] = ex_values[s]->data();
  }
  RUN(dgb_split(&fill, rows, entries, long_rows, nullptr));
  // What is shared and what is left to a snapshot make the snapshot.
  const std::vector<int32_t> shared = over_indices.host();
  const std::vector<float> shared_values = over_values.host();
  for (int s = 0; s < count; ++s) {
    const HostCsr& host = group.hosts[s];
    const std::vector<int32_t> own = ex_indices[s]->host();
    const std::vector<float> own_values = ex_values[s]->host();
    std::vector<int32_t> joined;
    std::vector<float> joined_values;
    for (int64_t r = 0; r < rows; ++r) {
      std::map<int32_t, float> row;
      for (int64_t p = over[r]; p < over[r + 1]; ++p) row[shared[p]] = shared_values[p * count + s];
      for (int64_t p = host.indptr[r] - over[r]; p < host.indptr[r + 1] - over[r + 1]; ++p) {
        row[own[p]] = own_values[p];
      }
      for (const auto& [column, value] : row) {
        joined.push_back(column);
        joined_values.push_back(value);
      }
    }
    expect_equal(joined, host.indices, "split columns, " + name);
    expect_equal(joined_values, group.weights[s], "split values, " + name);
    delete ex_indices[s];
    delete ex_values[s];
  }
}

void run_union(const std::vector<int64_t>& lengths, int count) {
  Random random(lengths.size() * 7 + count);
  Group group(lengths, count, random);
  const int64_t rows = group.hosts[0].rows();
  std::vector<int64_t> sizes;
  std::vector<int32_t> columns, masks;
  std::vector<float> weights;
  for (int64_t r = 0; r < rows; ++r) {
    std::map<int32_t, std::pair<int32_t, std::vector<float>>> row;
    for (int s = 0; s < count; ++s) {
      const HostCsr& host = group.hosts[s];
      for (int64_t p = host.indptr[r]; p < host.indptr[r + 1]; ++p) {
        auto& entry = row[host.indices[p]];
        entry.first |= static_cast<int32_t>(1u << s);
        entry.second.resize(count, 0.0f);
        entry.second[s] = group.weights[s][p];
      }
    }
    sizes.push_back(static_cast<int64_t>(row.size()));
    for (const auto& [column, entry] : row) {
      columns.push_back(column);
      masks.push_back(entry.first);
      weights.insert(weights.end(), entry.second.begin(), entry.second.end());
    }
  }
  const std::string name = named("rows, snapshots", {rows, count});
  const DeviceArray<int64_t> counts(rows);
  const CountUnion count_union{group.rows, counts.data()};
  RUN(dgb_count_union(&count_union, rows, nullptr));
  expect_equal(counts.host(), sizes, "count_union, " + name);
  const DeviceArray<int64_t> indptr(offsets_of(sizes));
  const DeviceArray<int32_t> union_indices(columns.size()), union_mask(columns.size());
  const DeviceArray<float> union_values(weights.size());
  FillUnion fill{};
  fill.rows = group.rows;
  fill.union_indptr = indptr.data();
  for (int s = 0; s < count; ++s) fill.values[s] = group.values[s]->data();
  fill.union_indices = union_indices.data();
  fill.union_mask = union_mask.data();
  fill.union_values = union_values.data();
  RUN(dgb_unite(&fill, rows, nullptr));
  expect_equal(union_indices.host(), columns, "unite columns, " + name);
  expect_equal(union_mask.host(), masks, "unite masks, " + name);
  expect_equal(union_values.host(), weights, "unite values, " + name);
}

DRIVER_CASE(overlap) {
  for (const auto& lengths : kRowLengths) {
    for (const int count : {1, 2, 5}) {
      for (const int64_t cap : {0, 4}) {
        run_split(lengths, count, cap, false);
        run_split(lengths, count, cap, true);
      }
      run_union(lengths, count);
    }
  }
}

// Pairs as they are sent: rows, then columns.
template <class Id>
void run_difference(const HostCsr& from, const HostCsr& to, bool from_nothing) {
  std::vector<Id> removed[2], added[2];
  for (int64_t r = 0; r < to.rows(); ++r) {
    const auto list = [&](const HostCsr& a, const HostCsr& b, std::vector<Id>(&pairs)[2]) {
      for (int64_t p = a.indptr[r]; p < a.indptr[r + 1]; ++p) {
        if (std::binary_search(b.indices.begin() + b.indptr[r],
                               b.indices.begin() + b.indptr[r + 1], a.indices[p])) continue;
        pairs[0].push_back(static_cast<Id>(r));
        pairs[1].push_back(static_cast<Id>(a.indices[p]));
      }
    };
    list(from, to, removed);
    list(to, from, added);
  }
  const bool wide = sizeof(Id) == 8;
  const DeviceArray<Id> gone_rows(removed[0]), gone_columns(removed[1]);
  const DeviceArray<Id> come_rows(added[0]), come_columns(added[1]);
  const Pairs gone{{gone_rows.data(), wide}, {gone_columns.data(), wide},
                   static_cast<int64_t>(removed[0].size())};
  const Pairs come{{come_rows.data(), wide}, {come_columns.data(), wide},
                   static_cast<int64_t>(added[0].size())};
  const DeviceArray<int64_t> indptr(from.indptr), found(3, -1);
  const DeviceArray<int32_t> indices(from.indices);
  const DeviceArray<int32_t> removed_at(removed[0].size()), added_at(added[0].size());
  const std::string name = named("rows, removed, added", {to.rows(), gone.count, come.count});
  if (!from_nothing && gone.count + come.count > 0) {
    const LocateChange locate{indptr.data(), indices.data(),    from.rows(),     kColumns,    gone,
                              come,          removed_at.data(), added_at.data(), found.data()};
    RUN(dgb_locate_changes(&locate, nullptr));
    expect_equal(found.host(), {-1, -1, -1}, "locate_changes, " + name);
  }
  const DeviceArray<int64_t> out_indptr(to.indptr.size());
  const DeviceArray<int32_t> out_indices(to.indices.size());
  Rebuild rebuild{};
  rebuild.indptr = from_nothing ? nullptr : indptr.data();
  rebuild.indices = indices.data();
  rebuild.rows = to.rows();
  rebuild.nnz = from.nnz();
  rebuild.removed_at = removed_at.data();
  rebuild.removed = gone.count;
  rebuild.added_at = added_at.data();
  rebuild.added = come;
  rebuild.out_indptr = out_indptr.data();
  rebuild.out_indices = out_indices.data();
  rebuild.out_nnz = to.nnz();
  RUN(dgb_rebuild(&rebuild, nullptr));
  expect_equal(out_indptr.host(), to.indptr, "rebuild offsets, " + name);
  expect_equal(out_indices.host(), to.indices, "rebuild columns, " + name);
}

DRIVER_CASE(difference) {
  for (const auto& lengths : kRowLengths) {
    Random random(lengths.size() + 3);
    const Group group(lengths, 2, random);
    const std::vector<int64_t> empty_rows(lengths.size(), 0);
    const HostCsr empty = random_csr(empty_rows, kColumns, random);
    run_difference<int64_t>(group.hosts[0], group.hosts[1], false);
    run_difference<int32_t>(group.hosts[1], group.hosts[0], false);
    run_difference<int32_t>(group.hosts[0], group.hosts[0], false);
    run_difference<int32_t>(group.hosts[0], empty, false);
    run_difference<int64_t>(empty, group.hosts[0], true);
  }
}

DRIVER_CASE(wire) {
  for (const auto& lengths : kRowLengths) {
    Random random(lengths.size() + 4);
    const Group group(lengths, 3, random);
    const int64_t rows = group.hosts[0].rows();
    UnpackOffsets unpack{};
    unpack.pieces = 3;
    unpack.rows = rows;
    std::vector<int64_t> right;
    std::vector<DeviceArray<int32_t>*> arrays;
    for (int s = 0; s < 3; ++s) {
      const HostCsr& host = group.hosts[s];
      std::vector<int32_t> slice_rows, slice_offsets;
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t p = host.indptr[r]; p < host.indptr[r + 1]; p += 32) {
          slice_rows.push_back(static_cast<int32_t>(r));
          slice_offsets.push_back(static_cast<int32_t>(p));
        }
      }
      slice_offsets.push_back(static_cast<int32_t>(host.nnz()));
      unpack.slices[s] = static_cast<int64_t>(slice_rows.size());
      arrays.push_back(new DeviceArray<int32_t>(slice_rows));
      unpack.row_indices[s] = arrays.back()->data();
      arrays.push_back(new DeviceArray<int32_t>(slice_offsets));
      unpack.slice_offsets[s] = arrays.back()->data();
      right.insert(right.end(), host.indptr.begin(), host.indptr.end());
    }
    const DeviceArray<int64_t> out(right.size());
    unpack.out = out.data();
    RUN(dgb_unpack_offsets(&unpack, nullptr));
    expect_equal(out.host(), right, named("unpack_offsets", {rows}));
    for (const auto* array : arrays) delete array;

    MergeExclusive merge{};
    merge.parts = group.rows;
    merge.rows = rows;
    merge.bits = 2;
    std::vector<int64_t> merged_indptr(1, 0);
    std::vector<uint32_t> merged;
    std::vector<float> merged_values;
    for (int s = 0; s < 3; ++s) {
      merge.before[s + 1] = merge.before[s] + group.hosts[s].nnz();
      merge.values[s] = group.values[s]->data();
    }
    for (int64_t r = 0; r < rows; ++r) {
      for (uint32_t s = 0; s < 3; ++s) {
        const HostCsr& host = group.hosts[s];
        for (int64_t p = host.indptr[r]; p < host.indptr[r + 1]; ++p) {
          merged.push_back(static_cast<uint32_t>(host.indices[p]) << 2 | s);
          merged_values.push_back(group.weights[s][p]);
        }
      }
      merged_indptr.push_back(static_cast<int64_t>(merged.size()));
    }
    const DeviceArray<int64_t> indptr(merged_indptr.size());
    const DeviceArray<uint32_t> entries(merged.size());
    const DeviceArray<float> values(merged.size());
    merge.out_indptr = indptr.data();
    merge.out_entries = entries.data();
    merge.out_values = values.data();
    RUN(dgb_merge_exclusive(&merge, nullptr));
    expect_equal(indptr.host(), merged_indptr, named("merge_exclusive offsets", {rows}));
    expect_equal(entries.host(), merged, named("merge_exclusive entries", {rows}));
    expect_equal(values.host(), merged_values, named("merge_exclusive values", {rows}));
  }
}

}  // namespace
}  // namespace dgbench::driver
