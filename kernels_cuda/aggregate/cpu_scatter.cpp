// Y = C (A^T [+ I]) R X from the lists of A itself, by scattering: the backward pass of a format that
// keeps no transposed copy. Threads own ranges of the scattered-to rows, so nothing is added
// atomically and the result does not depend on their number; each thread reads every row's ids.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <vector>

#include "common/caught.hpp"
#include "common/check.hpp"
#include "common/work_division.hpp"

namespace nb = nanobind;

namespace dgbench {
namespace {

template <class T>
void aggregate_parts_scatter(Array<const std::int64_t> over_ptr, Array<const std::int32_t> over_ids,
                             Maybe<const T> over_values, Maybe<const std::int64_t> ex_ptr,
                             Maybe<const std::int32_t> ex_ids, Maybe<const T> ex_values,
                             Maybe<const std::int32_t> order, Cube<const T> x, Cube<T> y,
                             Maybe<const T> row_scale, Maybe<const T> col_scale, bool self_loop,
                             int threads) {
  const auto rows = static_cast<std::int64_t>(x.shape(0));
  const auto columns = static_cast<std::int64_t>(y.shape(0));
  const auto S = static_cast<std::int64_t>(x.shape(1));
  const auto F = static_cast<std::int64_t>(x.shape(2));
  const std::int64_t d = S * F;
  check_size(over_ptr, static_cast<std::size_t>(rows) + 1, "over_indptr");
  check_end(over_ptr.data(), x.shape(0), over_ids.size(), "over_indptr");
  check_optional(over_values, over_ids.size() * S, "over_values");
  if (ex_ptr.has_value() != ex_ids.has_value()) reject("ex_indptr and ex_entries belong together");
  check_optional(ex_ptr, static_cast<std::size_t>(rows) + 1, "ex_indptr");
  if (ex_ids) check_end(ex_ptr->data(), x.shape(0), ex_ids->size(), "ex_indptr");
  if (ex_ids) check_optional(ex_values, ex_ids->size(), "ex_values");
  check_optional(order, static_cast<std::size_t>(rows), "order");
  check_optional(row_scale, static_cast<std::size_t>(rows * S), "row_scale");
  check_optional(col_scale, static_cast<std::size_t>(columns * S), "col_scale");
  if (y.shape(1) != x.shape(1) || y.shape(2) != x.shape(2)) {
    reject("x and y differ in their last two sizes");
  }
  if (self_loop && rows > columns) reject("self_loop needs a column for every row");
  int bits = 0;
  while ((std::int64_t{1} << bits) < S) ++bits;
  const std::uint32_t low = (1u << bits) - 1u;
  const std::int32_t* ids = over_ids.data();
  const T* values = pointer(over_values);
  const auto* entries = ex_ids ? reinterpret_cast<const std::uint32_t*>(ex_ids->data()) : nullptr;
  nb::gil_scoped_release release;
  threads = std::max(1, threads);
  Caught caught;
#pragma omp parallel for num_threads(threads) schedule(static, 1)
  for (int part = 0; part < threads; ++part) {
    const std::int64_t first = columns * part / threads;
    const std::int64_t stop = columns * (part + 1) / threads;
    std::fill(y.data() + first * d, y.data() + stop * d, T(0));
    std::vector<T> own;
    caught.run([&] { own.resize(static_cast<std::size_t>(d)); });
    if (caught.any()) continue;
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t j = 0; j < d; ++j) {
        own[j] = x.data()[r * d + j] * (row_scale ? row_scale->data()[r * S + j / F] : T(1));
      }
      // Ids ascend, so a thread's share of the row is one stretch.
      const std::int32_t* end = ids + over_ptr.data()[r + 1];
      for (const std::int32_t* id = std::lower_bound(ids + over_ptr.data()[r], end, first);
           id < end && *id < stop; ++id) {
        T* to = y.data() + *id * d;
        if (!values) {
          for (std::int64_t j = 0; j < d; ++j) to[j] += own[j];
          continue;
        }
        const T* weight = values + (id - ids) * S;
        for (std::int64_t s = 0; s < S; ++s) {
          for (std::int64_t f = s * F; f < (s + 1) * F; ++f) to[f] += weight[s] * own[f];
        }
      }
      if (entries) {
        const std::uint32_t* last = entries + ex_ptr->data()[r + 1];
        const auto before = [&](std::uint32_t entry, std::int64_t column) {
          return static_cast<std::int64_t>(entry >> bits) < column;
        };
        for (const std::uint32_t* e =
                 std::lower_bound(entries + ex_ptr->data()[r], last, first, before);
             e < last && before(*e, stop); ++e) {
          const T weight = ex_values ? ex_values->data()[e - entries] : T(1);
          const std::int64_t at = static_cast<std::int64_t>(*e & low) * F;
          T* to = y.data() + static_cast<std::int64_t>(*e >> bits) * d + at;
          for (std::int64_t f = 0; f < F; ++f) to[f] += weight * own[at + f];
        }
      }
      if (self_loop && r >= first && r < stop) {
        for (std::int64_t j = 0; j < d; ++j) y.data()[r * d + j] += own[j];
      }
    }
    if (!col_scale) continue;
    for (std::int64_t i = first * S; i < stop * S; ++i) {
      for (std::int64_t f = 0; f < F; ++f) y.data()[i * F + f] *= col_scale->data()[i];
    }
  }
  caught.rethrow();
}

template <class T>
void define(nb::module_& m) {
  using namespace nb::literals;
  m.def("aggregate_parts_scatter", &aggregate_parts_scatter<T>, "over_indptr"_a.noconvert(),
        "over_indices"_a.noconvert(), "over_values"_a.noconvert().none(),
        "ex_indptr"_a.noconvert().none(), "ex_entries"_a.noconvert().none(),
        "ex_values"_a.noconvert().none(), "order"_a.noconvert().none(), "x"_a.noconvert(),
        "y"_a.noconvert(), "row_scale"_a.noconvert().none(), "col_scale"_a.noconvert().none(),
        "self_loop"_a, "threads"_a);
}

}  // namespace

void bind_aggregate_scatter(nb::module_& m) {
  define<float>(m);
  define<double>(m);
}

}  // namespace dgbench
