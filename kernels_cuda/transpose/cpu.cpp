// Transposition, row sums, and the one list that holds the exclusive entries of all snapshots.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <vector>

#include "common/caught.hpp"
#include "common/check.hpp"
#include "common/counting.hpp"
#include "common/lists.hpp"
#include "common/work_division.hpp"

namespace nb = nanobind;

namespace dgbench {
namespace {

// Rows become columns. Entries are taken in order of their row, so columns ascend in the result.
// `values` may hold several scalars per entry; they move together.
void transpose(Array<const std::int64_t> indptr, Array<const std::int32_t> indices,
               Maybe<const float> values, std::int64_t num_cols, Array<std::int64_t> out_indptr,
               Array<std::int32_t> out_indices, Maybe<float> out_values, int threads) {
  const auto nnz = static_cast<std::int64_t>(indices.size());
  if (indptr.size() == 0) reject("indptr is empty, expected rows + 1 offsets");
  check_offsets(indptr.data(), indptr.size(), indices.size(), "indptr");
  check_size(out_indptr, static_cast<std::size_t>(num_cols) + 1, "out_indptr");
  check_size(out_indices, indices.size(), "out_indices");
  if (values.has_value() != out_values.has_value()) reject("values and out_values differ");
  if (values) check_size(*out_values, values->size(), "out_values");
  if (!ids_in_range(indices.data(), indices.size(), num_cols)) {
    reject("indices must satisfy 0 <= column < " + std::to_string(num_cols));
  }
  const auto rows = static_cast<std::int64_t>(indptr.size()) - 1;
  const std::int64_t width = nnz > 0 && values ? static_cast<std::int64_t>(values->size()) / nnz : 0;
  nb::gil_scoped_release release;
  std::vector<std::int32_t> row_of(nnz);
#pragma omp parallel for num_threads(std::max(1, threads)) schedule(dynamic, 4096) if (nnz > kSerialWork)
  for (std::int64_t r = 0; r < rows; ++r) {
    std::fill(row_of.begin() + indptr.data()[r], row_of.begin() + indptr.data()[r + 1],
              static_cast<std::int32_t>(r));
  }
  const std::int32_t* columns = indices.data();
  const float* from = pointer(values);
  float* to = out_values ? out_values->data() : nullptr;
  std::int32_t* out = out_indices.data();
  group_by(
      nnz, num_cols, threads, out_indptr.data(), [&](std::int64_t e) { return columns[e]; },
      [&](std::int64_t e, std::int64_t at) {
        out[at] = row_of[e];
        for (std::int64_t j = 0; j < width; ++j) to[at * width + j] = from[e * width + j];
      });
}

void row_sums(Array<const std::int64_t> indptr, Maybe<const float> values, Array<float> out,
              int threads) {
  check_size(out, indptr.size() - 1, "out");
  const auto rows = static_cast<std::int64_t>(out.size());
  const std::int64_t* at = indptr.data();
  if (values) check_offsets(at, indptr.size(), values->size(), "indptr");
  const float* weight = pointer(values);
  float* sum = out.data();
  nb::gil_scoped_release release;
#pragma omp parallel for num_threads(std::max(1, threads)) schedule(dynamic, 1024) if (rows > kSerialWork)
  for (std::int64_t r = 0; r < rows; ++r) {
    if (!weight) {
      sum[r] = static_cast<float>(at[r + 1] - at[r]);
      continue;
    }
    double total = 0;  // a hub's weights add up in double, or its degree would drift
    for (std::int64_t e = at[r]; e < at[r + 1]; ++e) total += weight[e];
    sum[r] = static_cast<float>(total);
  }
}

template <class T>
using Arrays = std::vector<Array<const T>>;

// The exclusive parts of S snapshots as one matrix of entries `column << bits | snapshot`, sorted by
// that entry in each row, so that neighbours of one column stand together.
void merge_exclusive(Arrays<std::int64_t> indptr, Arrays<std::int32_t> indices,
                     Arrays<float> values, Array<std::int64_t> out_indptr,
                     Array<std::int32_t> out_entries, Maybe<float> out_values, int threads) {
  const std::size_t count = indptr.size();
  if (count == 0 || indices.size() != count) reject("indptr and indices differ in snapshots");
  if (!values.empty() && values.size() != count) reject("values and indices differ in snapshots");
  if (values.empty() == out_values.has_value()) reject("values and out_values differ");
  std::size_t total = 0;
  for (std::size_t s = 0; s < count; ++s) {
    check_size(indptr[s], out_indptr.size(), "indptr");
    check_offsets(indptr[s].data(), indptr[s].size(), indices[s].size(), "indptr");
    if (!values.empty()) check_size(values[s], indices[s].size(), "values");
    total += indices[s].size();
  }
  check_size(out_entries, total, "out_entries");
  check_optional(out_values, total, "out_values");
  int bits = 0;
  while ((std::size_t{1} << bits) < count) ++bits;
  const auto rows = static_cast<std::int64_t>(out_indptr.size()) - 1;
  nb::gil_scoped_release release;
  std::int64_t* at = out_indptr.data();
  for (std::int64_t r = 0; r <= rows; ++r) {
    at[r] = 0;
    for (std::size_t s = 0; s < count; ++s) at[r] += indptr[s].data()[r];
  }
  auto* entries = reinterpret_cast<std::uint32_t*>(out_entries.data());
  Caught caught;
#pragma omp parallel num_threads(std::max(1, threads))
  {
    std::vector<std::pair<std::uint32_t, float>> row;
#pragma omp for schedule(dynamic, 512)
    for (std::int64_t r = 0; r < rows; ++r) {
      row.clear();
      caught.run([&] {
        for (std::size_t s = 0; s < count; ++s) {
          for (std::int64_t e = indptr[s].data()[r]; e < indptr[s].data()[r + 1]; ++e) {
            const auto column = static_cast<std::uint32_t>(indices[s].data()[e]);
            row.emplace_back(column << bits | static_cast<std::uint32_t>(s),
                             values.empty() ? 0.0f : values[s].data()[e]);
          }
        }
      });
      if (caught.any()) continue;
      std::stable_sort(row.begin(), row.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
      for (std::size_t j = 0; j < row.size(); ++j) {
        entries[at[r] + static_cast<std::int64_t>(j)] = row[j].first;
        if (out_values) out_values->data()[at[r] + static_cast<std::int64_t>(j)] = row[j].second;
      }
    }
  }
  caught.rethrow();
}

}  // namespace

void bind_transpose(nb::module_& m) {
  using namespace nb::literals;
  m.def("transpose", &transpose, "indptr"_a.noconvert(), "indices"_a.noconvert(),
        "values"_a.noconvert().none(), "num_cols"_a, "out_indptr"_a.noconvert(),
        "out_indices"_a.noconvert(), "out_values"_a.noconvert().none(), "threads"_a);
  m.def("row_sums", &row_sums, "indptr"_a.noconvert(), "values"_a.noconvert().none(),
        "out"_a.noconvert(), "threads"_a);
  m.def("merge_exclusive", &merge_exclusive, "indptr"_a.noconvert(), "indices"_a.noconvert(),
        "values"_a.noconvert(), "out_indptr"_a.noconvert(), "out_entries"_a.noconvert(),
        "out_values"_a.noconvert().none(), "threads"_a);
}

}  // namespace dgbench
