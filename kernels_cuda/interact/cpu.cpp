// Sums over the partners of an interval's edges, products of their rows, and the groups behind both.
//
// A row's edges are added in their order by one thread, in registers or a cache line at a time, so a
// result is the same for every number of threads and nothing is added atomically.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/check.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace dgbench {
namespace {

constexpr std::int64_t kSerialFloats = 1 << 15;  // fewer are added up before threads have begun

// offsets int64[n + 1], order int64[P]: a stable counting sort of P edges by their rows.
void interact_group(Array<const std::int64_t> rows, Array<std::int64_t> offsets,
                    Array<std::int64_t> order, int) {
  if (offsets.size() == 0) reject("offsets must have an element more than there are rows");
  check_size(order, rows.size(), "order");
  const auto limit = static_cast<std::int64_t>(offsets.size()) - 1;
  if (!ids_in_range(rows.data(), rows.size(), limit)) reject("rows must lie in [0, n)");
  nb::gil_scoped_release release;
  std::int64_t* const first = offsets.data();
  const std::int64_t* const row = rows.data();
  const auto edges = static_cast<std::int64_t>(rows.size());
  std::fill(first, first + limit + 1, 0);
  for (std::int64_t e = 0; e < edges; ++e) ++first[row[e] + 1];
  for (std::int64_t r = 0; r < limit; ++r) first[r + 1] += first[r];
  // Each row's begin is moved along while it fills, and all move back by one row afterwards.
  for (std::int64_t e = 0; e < edges; ++e) order.data()[first[row[e]]++] = e;
  for (std::int64_t r = limit; r > 0; --r) first[r] = first[r - 1];
  if (limit >= 0) first[0] = 0;
}

// The columns of one row, a block of which stays in registers over all of the row's edges.
template <class T, int kBlock>
void add_piece(const std::int64_t* order, std::int64_t count, const std::int64_t* other,
               const T* weight, const T* x, std::int64_t width, T* out) {
  T sum[kBlock] = {};
  for (std::int64_t k = 0; k < count; ++k) {
    const std::int64_t e = order[k];
    const T* const from = x + other[e] * width;
    const T w = weight ? weight[e] : T{1};
    for (int j = 0; j < kBlock; ++j) sum[j] += w * from[j];
  }
  std::copy(sum, sum + kBlock, out);
}

constexpr std::int64_t kPiece = 256;  // edges that are added one after the other

// The same; of a long row pieces are added in float64, so that it keeps its digits.
template <class T, int kBlock>
void add_block(const std::int64_t* order, std::int64_t count, const std::int64_t* other,
               const T* weight, const T* x, std::int64_t width, T* out) {
  if (count <= kPiece) {
    add_piece<T, kBlock>(order, count, other, weight, x, width, out);
    return;
  }
  double whole[kBlock] = {};
  T sum[kBlock];
  for (std::int64_t k = 0; k < count; k += kPiece) {
    add_piece<T, kBlock>(order + k, std::min(kPiece, count - k), other, weight, x, width, sum);
    for (int j = 0; j < kBlock; ++j) whole[j] += sum[j];
  }
  for (int j = 0; j < kBlock; ++j) out[j] = static_cast<T>(whole[j]);
}

template <class T>
void add_row(const std::int64_t* order, std::int64_t count, const std::int64_t* other,
             const T* weight, const T* x, std::int64_t width, T* out) {
  std::int64_t column = 0;
  for (; column + 64 <= width; column += 64) {
    add_block<T, 64>(order, count, other, weight, x + column, width, out + column);
  }
  for (; column + 16 <= width; column += 16) {
    add_block<T, 16>(order, count, other, weight, x + column, width, out + column);
  }
  for (; column < width; ++column) {
    add_block<T, 1>(order, count, other, weight, x + column, width, out + column);
  }
}

// out[r] = sum over the edges e of row r of weight[e] * x[other[e]], or x[other[last e]] with `last`.
template <class T>
void interact_sums(Array<const std::int64_t> offsets, Array<const std::int64_t> order,
                   Array<const std::int64_t> other, Maybe<const T> weight, Matrix<const T> x,
                   Matrix<T> out, bool last, int threads) {
  const auto rows = static_cast<std::int64_t>(out.shape(0));
  const auto width = static_cast<std::int64_t>(out.shape(1));
  if (static_cast<std::int64_t>(x.shape(1)) != width) reject("out must be as wide as x");
  check_size(offsets, out.shape(0) + 1, "offsets");
  check_size(other, order.size(), "other");
  check_optional(weight, order.size(), "weight");
  check_offsets(offsets.data(), offsets.size(), order.size(), "offsets");
  if (!ids_in_range(other.data(), other.size(), static_cast<std::int64_t>(x.shape(0)))) {
    reject("other must lie in the rows of x");
  }
  if (!ids_in_range(order.data(), order.size(), static_cast<std::int64_t>(order.size()))) {
    reject("order must lie in the edges");
  }
  const T* const w = pointer(weight);
  const std::int64_t work = static_cast<std::int64_t>(order.size() + out.shape(0)) * width;
  nb::gil_scoped_release release;
#pragma omp parallel for schedule(guided, 64) num_threads(std::max(1, threads)) \
    if (work > kSerialFloats)
  for (std::int64_t r = 0; r < rows; ++r) {
    std::int64_t first = offsets.data()[r];
    const std::int64_t stop = offsets.data()[r + 1];
    if (last) first = std::max(first, stop - 1);
    add_row<T>(order.data() + first, stop - first, other.data(), w, x.data(), width,
               out.data() + r * width);
  }
}

template <class T>
void interact_dots(Array<const std::int64_t> src, Array<const std::int64_t> dst,
                   Matrix<const T> left, Matrix<const T> right, Array<T> out, int threads) {
  const auto edges = static_cast<std::int64_t>(src.size());
  const auto width = static_cast<std::int64_t>(left.shape(1));
  if (right.shape(1) != left.shape(1)) reject("right must be as wide as left");
  check_size(dst, src.size(), "dst");
  check_size(out, src.size(), "out");
  if (!ids_in_range(src.data(), src.size(), static_cast<std::int64_t>(left.shape(0))) ||
      !ids_in_range(dst.data(), dst.size(), static_cast<std::int64_t>(right.shape(0)))) {
    reject("src and dst must lie in the rows of left and right");
  }
  nb::gil_scoped_release release;
#pragma omp parallel for schedule(static) num_threads(std::max(1, threads)) \
    if (edges * width > kSerialFloats)
  for (std::int64_t e = 0; e < edges; ++e) {
    const T* const a = left.data() + src.data()[e] * width;
    const T* const b = right.data() + dst.data()[e] * width;
    // Sixteen partial sums in a fixed order: what the compiler may put into one wide register.
    T part[16] = {};
    std::int64_t j = 0;
    for (; j + 16 <= width; j += 16) {
      for (int k = 0; k < 16; ++k) part[k] += a[j + k] * b[j + k];
    }
    for (; j < width; ++j) part[j % 16] += a[j] * b[j];
    T sum = 0;
    for (const T p : part) sum += p;
    out.data()[e] = sum;
  }
}

// ids int64[U], rows int64[2 B (+ B)], counts int64[4]; see `LocalRows` for the classes.
void interact_local_rows(Array<const std::int64_t> src, Array<const std::int64_t> dst,
                         Array<const std::int64_t> neg, Array<std::int32_t> scratch,
                         Array<std::int64_t> ids, Array<std::int64_t> rows,
                         Array<std::int64_t> counts, int) {
  const std::size_t edges = src.size();
  check_size(dst, edges, "dst");
  if (neg.size() != 0) check_size(neg, edges, "neg");
  check_size(rows, 2 * edges + neg.size(), "rows");
  check_size(ids, rows.size(), "ids");
  check_size(counts, 4, "counts");
  const auto limit = static_cast<std::int64_t>(scratch.size());
  if (!ids_in_range(src.data(), edges, limit) || !ids_in_range(dst.data(), edges, limit) ||
      !ids_in_range(neg.data(), neg.size(), limit)) {
    reject("src, dst and neg must lie in [0, N)");
  }
  nb::gil_scoped_release release;
  std::int32_t* const place = scratch.data();
  std::vector<std::int64_t> seen;
  seen.reserve(rows.size());
  const auto mark = [&](const std::int64_t* list, std::size_t count, std::int32_t bit) {
    for (std::size_t k = 0; k < count; ++k) {
      std::int32_t& found = place[list[k]];
      if (found < 0) {
        found = 0;
        seen.push_back(list[k]);
      }
      found |= bit;
    }
  };
  mark(src.data(), edges, 1);
  mark(dst.data(), edges, 2);
  mark(neg.data(), neg.size(), 4);
  std::sort(seen.begin(), seen.end());
  // Only source, source and more, destination, only negative.
  const auto kind = [](std::int32_t bits) { return bits & 1 ? (bits == 1 ? 0 : 1) : bits & 2 ? 2 : 3; };
  std::int64_t sizes[4] = {};
  for (const std::int64_t v : seen) ++sizes[kind(place[v])];
  std::int64_t next[4] = {0, sizes[0], sizes[0] + sizes[1], sizes[0] + sizes[1] + sizes[2]};
  for (const std::int64_t v : seen) {
    const std::int64_t row = next[kind(place[v])]++;
    ids.data()[row] = v;
    place[v] = static_cast<std::int32_t>(row);
  }
  std::int64_t* out = rows.data();
  for (std::size_t k = 0; k < edges; ++k) *out++ = place[src.data()[k]];
  for (std::size_t k = 0; k < edges; ++k) *out++ = place[dst.data()[k]];
  for (std::size_t k = 0; k < neg.size(); ++k) *out++ = place[neg.data()[k]];
  for (const std::int64_t v : seen) place[v] = -1;
  std::copy(sizes, sizes + 4, counts.data());
}

template <class T>
void bind_of(nb::module_& m) {
  m.def("interact_sums", &interact_sums<T>, "offsets"_a.noconvert(), "order"_a.noconvert(),
        "other"_a.noconvert(), "weight"_a.noconvert().none(), "x"_a.noconvert(),
        "out"_a.noconvert(), "last"_a, "threads"_a);
  m.def("interact_dots", &interact_dots<T>, "src"_a.noconvert(), "dst"_a.noconvert(),
        "left"_a.noconvert(), "right"_a.noconvert(), "out"_a.noconvert(), "threads"_a);
}

}  // namespace

void bind_interact(nb::module_& m) {
  m.def("interact_group", &interact_group, "rows"_a.noconvert(), "offsets"_a.noconvert(),
        "order"_a.noconvert(), "threads"_a);
  m.def("interact_local_rows", &interact_local_rows, "src"_a.noconvert(), "dst"_a.noconvert(),
        "neg"_a.noconvert(), "scratch"_a.noconvert(), "ids"_a.noconvert(), "rows"_a.noconvert(),
        "counts"_a.noconvert(), "threads"_a);
  bind_of<float>(m);
  bind_of<double>(m);
}

}  // namespace dgbench
