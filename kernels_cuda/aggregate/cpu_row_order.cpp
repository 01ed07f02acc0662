// A copy of a topology with its rows sorted by length, block by block. Rows of one length after
// another make the branch at the end of a row predictable, which on narrow products costs as much
// as the sums do.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <vector>

#include "common/check.hpp"
#include "common/work_division.hpp"

namespace nb = nanobind;

namespace dgbench {
namespace {

// Sorts rows [begin, end) of a block by falling length in one list, equal ones as they were.
void by_length(const std::int64_t* at, std::int32_t* begin, std::int32_t* end) {
  constexpr std::int64_t kLong = 1024;  // rows as long as this are few
  const auto length = [&](std::int32_t r) { return at[r + 1] - at[r]; };
  const auto place = [&](std::int32_t r) { return std::max<std::int64_t>(kLong - length(r), 0); };
  std::int32_t first[kLong + 2] = {};
  for (const std::int32_t* r = begin; r < end; ++r) ++first[place(*r) + 1];
  for (std::int64_t i = 1; i <= kLong; ++i) first[i] += first[i - 1];
  std::int32_t sorted[kOrderMost];
  for (const std::int32_t* r = begin; r < end; ++r) sorted[first[place(*r)]++] = *r;
  std::stable_sort(sorted, sorted + first[0],
                   [&](std::int32_t a, std::int32_t b) { return length(a) > length(b); });
  std::copy(sorted, sorted + (end - begin), begin);
}

// Block after block: rows by falling length in the first list, ties by the second (where there is
// one), then by row.
void sort_rows(Array<const std::int64_t> indptr, Maybe<const std::int64_t> second,
               Array<std::int32_t> order, int threads) {
  check_size(indptr, order.size() + 1, "indptr");
  check_optional(second, order.size() + 1, "second");
  const auto check = [](const Array<const std::int64_t>& at, const char* name) {
    const std::int64_t last = at.data()[at.size() - 1];
    check_offsets(at.data(), at.size(), static_cast<std::size_t>(std::max<std::int64_t>(0, last)),
                  name);
  };
  check(indptr, "indptr");
  if (second) check(*second, "second");
  nb::gil_scoped_release release;
  const auto rows = static_cast<std::int64_t>(order.size());
  const std::int64_t block = order_block(rows);
  std::int32_t* row = order.data();
#pragma omp parallel for num_threads(std::max(1, threads)) schedule(dynamic, 1) if (rows > kSerialWork)
  for (std::int64_t at = 0; at < rows; at += block) {
    const std::int64_t end = std::min(at + block, rows);
    for (std::int64_t r = at; r < end; ++r) row[r] = static_cast<std::int32_t>(r);
    if (second) by_length(second->data(), row + at, row + end);
    by_length(indptr.data(), row + at, row + end);
  }
}

// The lists of rows order[0], order[1], ... one after another. `values` may hold several scalars
// per entry; they move together.
void take_rows(Array<const std::int64_t> indptr, Array<const std::int32_t> indices,
               Maybe<const float> values, Array<const std::int32_t> order,
               Array<std::int64_t> out_indptr, Array<std::int32_t> out_indices,
               Maybe<float> out_values, int threads) {
  const auto rows = static_cast<std::int64_t>(order.size());
  check_size(indptr, order.size() + 1, "indptr");
  check_offsets(indptr.data(), indptr.size(), indices.size(), "indptr");
  check_size(out_indptr, order.size() + 1, "out_indptr");
  check_size(out_indices, indices.size(), "out_indices");
  if (values.has_value() != out_values.has_value()) reject("values and out_values differ");
  if (values) check_size(*out_values, values->size(), "out_values");
  std::vector<bool> taken(order.size(), false);
  for (std::int64_t k = 0; k < rows; ++k) {
    const std::int32_t r = order.data()[k];
    if (r < 0 || r >= rows || taken[r]) reject("order must hold every row once");
    taken[r] = true;
  }
  const auto nnz = static_cast<std::int64_t>(indices.size());
  const std::int64_t width = nnz > 0 && values ? static_cast<std::int64_t>(values->size()) / nnz : 0;
  const std::int64_t* at = indptr.data();
  std::int64_t* out = out_indptr.data();
  nb::gil_scoped_release release;
  out[0] = 0;
  for (std::int64_t k = 0; k < rows; ++k) {
    const std::int32_t r = order.data()[k];
    out[k + 1] = out[k] + at[r + 1] - at[r];
  }
#pragma omp parallel for num_threads(std::max(1, threads)) schedule(dynamic, 1024) if (nnz > kSerialWork)
  for (std::int64_t k = 0; k < rows; ++k) {
    const std::int32_t r = order.data()[k];
    std::copy(indices.data() + at[r], indices.data() + at[r + 1], out_indices.data() + out[k]);
    if (width == 0) continue;
    std::copy(values->data() + at[r] * width, values->data() + at[r + 1] * width,
              out_values->data() + out[k] * width);
  }
}

}  // namespace

void bind_row_order(nb::module_& m) {
  using namespace nb::literals;
  m.def("sort_rows", &sort_rows, "indptr"_a.noconvert(), "second"_a.noconvert().none(),
        "order"_a.noconvert(), "threads"_a);
  m.def("take_rows", &take_rows, "indptr"_a.noconvert(), "indices"_a.noconvert(),
        "values"_a.noconvert().none(), "order"_a.noconvert(), "out_indptr"_a.noconvert(),
        "out_indices"_a.noconvert(), "out_values"_a.noconvert().none(), "threads"_a);
}

}  // namespace dgbench
