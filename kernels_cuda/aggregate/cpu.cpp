// Aggregation over CSR on the CPU: scaling, division of work, rows too long for one thread, binding.
//
// The device module offers the same functions under the same names; where these end in `threads`,
// those end in `stream`:
//   spmm(indptr int64[N+1], indices int32[M], values f[M]|None, order int32[N]|None, x f[C, F],
//        y f[N, F], row_scale f[N]|None, col_scale f[C]|None, self_loop, threads)
//   aggregate_parts(over_indptr int64[N+1], over_indices int32[M], over_values f[M, S]|None,
//        ex_indptr int64[N+1]|None, ex_entries int32[K]|None, ex_values f[K]|None,
//        order int32[N]|None, x f[C, S, F], y f[N, S, F], row_scale f[N, S]|None,
//        col_scale f[C, S]|None, self_loop, threads)
//   aggregate_parts_scatter(the same): Y = C (A^T [+ I]) R X from the untransposed lists, so
//        x f[N, S, F], y f[C, S, F] and the scales keep their sides
// KeptProduct is this module's alone.
// `ex_entries` are `column << bits | snapshot` with bits = bit length of S - 1 (merge_exclusive in
// transpose/cpu.cpp). With `order` the lists hold the rows in another order: stored row k is row order[k]
// of y, of the scales and of the self loop (sort_rows in aggregate/cpu_row_order.cpp).
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

#include "aggregate/cpu_product.hpp"
#include "common/caught.hpp"
#include "common/check.hpp"
#include "common/work_division.hpp"

namespace nb = nanobind;

namespace dgbench {
namespace {

// A row with more entries than this is cut, so that one hub does not occupy one thread for long.
constexpr std::int64_t kHeavyRow = 32768;
constexpr std::int64_t kPiece = 8192;
// Columns of a wide product are taken in tiles: the gathered part of X then stays in the last-level
// cache, which is worth more than reading the indices again.
constexpr int kColumnTile = 128;

// Entries ahead at which rows of x are asked for; below 0 where `entries_ahead` says it.
std::atomic<int> chosen_ahead{-1};
using PickKernels = RowKernels<float> (*)(int width, Weights weights, bool single);
std::atomic<PickKernels> chosen_kernels{nullptr};

// How one call is done; see `aggregate/choice.py`. No bit of a result depends on `ahead`.
struct Variant {
  int ahead = -1;                  // as `chosen_ahead`, which comes first
  PickKernels kernels = nullptr;   // by the width where null; `chosen_kernels` comes first
};

// The registers for a width where nobody chose. A last register of 512 bits that is not filled makes
// rows cross more lines of cache than narrower registers, which long rows wait for; `length` is the
// mean length of a row.
PickKernels pick_by_width(int width, bool single, std::int64_t length) {
  const auto within = [width](int low, int high) { return low <= width && width <= high; };
  const bool narrow = within(5, 7) || within(9, 15) || within(17, 24) ||
                      (length >= 100 && within(26, 28)) || (length >= 24 && within(33, 40));
  return single && narrow ? pick_avx2 : pick_avx512;
}

RowKernels<float> pick(const Variant& how, int width, Weights weights, bool single,
                       std::int64_t length, float) {
  PickKernels kernels = chosen_kernels;
  if (!kernels) kernels = how.kernels ? how.kernels : pick_by_width(width, single, length);
  return kernels(width, weights, single);
}
RowKernels<double> pick(const Variant&, int width, Weights weights, bool single, std::int64_t,
                        double) {
  return pick_portable_double(width, weights, single);
}

// Bytes of a core's second-level cache.
std::int64_t core_cache() {
  static const long found = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return found > 0 ? found : std::int64_t{1} << 20;
}

// How far ahead rows of x are asked for, by their width and the size of x. Asking costs slots: while
// x lies in half a core's cache, beside the lists that pass through it, rows come soon enough. No bit
// of a result depends on it.
template <class T>
int entries_ahead(const RowJob<T>& job, const Variant& how, std::int64_t columns) {
  if (chosen_ahead >= 0) return chosen_ahead;
  if (how.ahead >= 0) return how.ahead;
  const auto bytes = columns * job.stride * static_cast<std::int64_t>(sizeof(T));
  if (bytes <= core_cache() / 2) return 0;
  const auto lines = (job.width() * sizeof(T) + 63) / 64;
  return lines == 1 || lines == 3 ? 32 : lines <= 4 ? 16 : 8;
}

// The kernels on some registers; null for no choice.
PickKernels kernels_of(const std::string& name) {
  if (name.empty()) return nullptr;
  if (name == "avx512") return pick_avx512;
  if (name == "avx2") return pick_avx2;
  if (name == "portable") return pick_portable;
  reject("registers is '" + name + "', allowed are avx512, avx2, portable and '' for no choice");
}

std::int64_t entries_of(const std::int64_t* over, const std::int64_t* ex, std::int64_t begin,
                        std::int64_t end) {
  return over[end] - over[begin] + (ex ? ex[end] - ex[begin] : 0);
}

// A piece of a heavy row: a range of one of its two lists.
struct Piece {
  std::int64_t row, over_begin, over_end, ex_begin, ex_end;
};

template <class T>
std::vector<Piece> cut(const RowJob<T>& job, const std::vector<std::int64_t>& rows) {
  std::vector<Piece> pieces;
  for (const std::int64_t r : rows) {
    for (std::int64_t e = job.over_ptr[r]; e < job.over_ptr[r + 1]; e += kPiece) {
      pieces.push_back({r, e, std::min(e + kPiece, job.over_ptr[r + 1]), 0, 0});
    }
    if (!job.ex_ptr) continue;
    for (std::int64_t e = job.ex_ptr[r]; e < job.ex_ptr[r + 1]; e += kPiece) {
      pieces.push_back({r, 0, 0, e, std::min(e + kPiece, job.ex_ptr[r + 1])});
    }
  }
  return pieces;
}

// Sums the pieces of heavy rows in parallel, then adds them up in their order.
template <class T>
void run_heavy(const RowJob<T>& job, const RowKernels<T>& kernels, std::vector<std::int64_t> rows,
               int threads) {
  std::sort(rows.begin(), rows.end());
  const std::vector<Piece> pieces = cut(job, rows);
  const int d = job.width();
  const auto count = static_cast<std::int64_t>(pieces.size());
  std::vector<T> parts(static_cast<std::size_t>(count) * d);
  Caught caught;
#pragma omp parallel num_threads(threads)
  {
    std::vector<T> scratch;
    caught.run([&] { scratch.resize(scratch_size(job)); });
#pragma omp for schedule(dynamic, 1)
    for (std::int64_t i = 0; i < count; ++i) {
      if (caught.any()) continue;
      const Piece& p = pieces[i];
      kernels.piece(job, p.over_begin, p.over_end, p.ex_begin, p.ex_end, parts.data() + i * d,
                    scratch.data());
    }
  }
  caught.rethrow();
  std::int64_t i = 0;
  for (const std::int64_t k : rows) {
    std::vector<T> sum(d, T(0));
    for (; i < count && pieces[i].row == k; ++i) {
      for (int j = 0; j < d; ++j) sum[j] += parts[i * d + j];
    }
    const std::int64_t r = job.order ? job.order[k] : k;
    for (int j = 0; j < d; ++j) {
      const T own = job.self_loop ? job.x[r * job.stride + j] : T(0);
      const T scale = job.row_scale
                          ? job.row_scale[r * job.snapshots + job.lane_snapshot[j]]
                          : T(1);
      job.y[r * job.stride + j] = (sum[j] + own) * scale;
    }
  }
}

template <class T>
void run(const RowJob<T>& job, const RowKernels<T>& kernels, std::int64_t rows, int threads) {
  const std::int64_t work = entries_of(job.over_ptr, job.ex_ptr, 0, rows) + rows;
  if (work < kSerialWork) {  // a region costs as much as some hundred entries
    static_assert(kSerialWork <= kHeavyRow);
    std::vector<T> scratch(scratch_size(job));
    kernels.rows(job, 0, rows, scratch.data());
    return;
  }
  const auto cost = [&](std::int64_t k) { return entries_of(job.over_ptr, job.ex_ptr, 0, k) + k; };
  const std::int64_t chunks = count_chunks(work, threads);
  const std::int64_t block = job.order ? order_block(rows) : 1;
  const auto start = [&](std::int64_t c) {  // at a block's first row
    const std::int64_t row = chunk_start(rows, work, c, chunks, cost);
    return row == rows ? rows : row / block * block;
  };
  std::vector<std::int64_t> heavy;
  Caught caught;
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    std::vector<T> scratch;
    caught.run([&] { scratch.resize(scratch_size(job)); });
#pragma omp for schedule(dynamic, 1) nowait
    for (std::int64_t c = 0; c < chunks; ++c) {
      if (caught.any()) continue;
      std::int64_t begin = start(c);
      const std::int64_t end = start(c + 1);
      if (entries_of(job.over_ptr, job.ex_ptr, begin, end) > kHeavyRow) {
        for (std::int64_t k = begin; k < end; ++k) {
          if (entries_of(job.over_ptr, job.ex_ptr, k, k + 1) <= kHeavyRow) {
            // Without entries of single snapshots no row of a block is longer than those before it.
            if (job.order && !job.ex_ptr) k = k / block * block + block - 1;
            continue;
          }
          if (begin < k) kernels.rows(job, begin, k, scratch.data());
          begin = k + 1;
#pragma omp critical(dgbench_heavy_rows)
          caught.run([&] { heavy.push_back(k); });
        }
      }
      if (begin < end) kernels.rows(job, begin, end, scratch.data());
    }
  }
  caught.rethrow();
  if (!heavy.empty()) run_heavy(job, kernels, std::move(heavy), threads);
}

// Memory for C X that outlives the call: fresh pages would cost more than the scaling itself.
template <class T>
T* scratch_of(std::size_t count) {
  static thread_local std::vector<T> kept;
  if (kept.size() < count) {
    kept = std::vector<T>();  // the old block goes before the new one comes
    kept.resize(count);
  }
  return kept.data();
}

// C X, because scaling a column once costs less than scaling each of its entries: a product with no
// entries but the self loop.
template <class T>
void scale_into(RowJob<T> job, T* out, const T* scale, std::int64_t columns, const Variant& how,
                int threads) {
  const std::vector<std::int64_t> none(static_cast<std::size_t>(columns) + 1, 0);
  job.over_ptr = none.data();
  job.entries = 0;  // so that nothing is asked for ahead
  job.over_values = nullptr;
  job.ex_ptr = nullptr;
  job.order = nullptr;
  job.y = out;
  job.row_scale = scale;
  job.self_loop = true;
  run(job, pick(how, job.width(), Weights::none, false, 0, T()), columns, threads);
}

template <class T>
void multiply(RowJob<T> job, std::int64_t rows, std::int64_t columns, const T* col_scale,
              int column_tile, const Variant& how, int threads) {
  const int S = job.snapshots;
  const int F = job.features;
  if (S == 0 || F == 0 || rows == 0) return;
  threads = std::max(1, threads);
  const T* x = job.x;
  T* y = job.y;
  while ((1 << job.shift) < S) ++job.shift;
  job.entries = job.over_ptr[rows];
  job.stride = static_cast<std::int64_t>(S) * F;
  std::vector<std::int32_t> snapshot_of(job.stride);
  for (int j = 0; j < job.stride; ++j) snapshot_of[j] = j / F;
  job.lane_snapshot = snapshot_of.data();
  if (col_scale) {
    T* scaled = scratch_of<T>(static_cast<std::size_t>(columns) * job.stride);
    scale_into(job, scaled, col_scale, columns, how, threads);
    x = scaled;
  }
  const Weights weights = !job.over_values ? Weights::none
                          : S == 1         ? Weights::one
                                           : Weights::per_snapshot;
  const bool single = S == 1 && !job.ex_ptr;
  const int tile = single ? std::min(F, column_tile > 0 ? column_tile : kColumnTile) : F;
  for (int at = 0; at < F; at += tile) {
    job.x = x + at;
    job.y = y + at;
    job.features = std::min(tile, F - at);
    job.ahead = entries_ahead(job, how, columns);
    run(job, pick(how, job.width(), weights, single, job.entries / rows, T()), rows, threads);
  }
}

template <class T>
void spmm(Array<const std::int64_t> indptr, Array<const std::int32_t> indices,
          Maybe<const T> values, Maybe<const std::int32_t> order, Matrix<const T> x, Matrix<T> y,
          Maybe<const T> row_scale, Maybe<const T> col_scale, bool self_loop, int threads,
          int column_tile, int ahead, const std::string& registers) {
  const std::size_t rows = y.shape(0);
  check_size(indptr, rows + 1, "indptr");
  check_end(indptr.data(), rows, indices.size(), "indptr");
  check_optional(values, indices.size(), "values");
  check_optional(order, rows, "order");
  check_optional(row_scale, rows, "row_scale");
  check_optional(col_scale, x.shape(0), "col_scale");
  if (x.shape(1) != y.shape(1)) reject("x and y differ in features");
  if (self_loop && rows > x.shape(0)) reject("self_loop needs a column for every row");
  RowJob<T> job;
  job.over_ptr = indptr.data();
  job.over_ids = indices.data();
  job.over_values = pointer(values);
  job.order = pointer(order);
  job.x = x.data();
  job.y = y.data();
  job.features = static_cast<int>(x.shape(1));
  job.row_scale = pointer(row_scale);
  job.self_loop = self_loop;
  const Variant how{ahead, kernels_of(registers)};
  nb::gil_scoped_release release;
  multiply(job, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(x.shape(0)),
           pointer(col_scale), column_tile, how, threads);
}

// A product that is made again and again with other features: its lists are checked, and taken from
// Python, once.
class KeptProduct {
 public:
  KeptProduct(Array<const std::int64_t> indptr, Array<const std::int32_t> indices,
              Maybe<const float> values, Maybe<const std::int32_t> order, std::size_t columns,
              bool self_loop, int column_tile, int ahead, const std::string& registers)
      : indptr_(std::move(indptr)), indices_(std::move(indices)), values_(std::move(values)),
        order_(std::move(order)), columns_(columns), column_tile_(column_tile),
        how_{ahead, kernels_of(registers)} {
    if (indptr_.size() == 0) reject("indptr is empty");
    rows_ = indptr_.size() - 1;
    check_end(indptr_.data(), rows_, indices_.size(), "indptr");
    check_optional(values_, indices_.size(), "values");
    check_optional(order_, rows_, "order");
    if (self_loop && rows_ > columns_) reject("self_loop needs a column for every row");
    job_.over_ptr = indptr_.data();
    job_.over_ids = indices_.data();
    job_.over_values = pointer(values_);
    job_.order = pointer(order_);
    job_.self_loop = self_loop;
  }

  using Scale = std::optional<nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>>;

  void multiply_with(Matrix<const float> x, Matrix<float> y, const Scale& row_scale,
                     const Scale& col_scale, int threads) const {
    if (row_scale) check_size(*row_scale, rows_, "row_scale");
    if (col_scale) check_size(*col_scale, columns_, "col_scale");
    if (x.shape(0) != columns_ || y.shape(0) != rows_ || x.shape(1) != y.shape(1)) {
      reject("x or y is of another shape than the product's");
    }
    RowJob<float> job = job_;
    job.x = x.data();
    job.y = y.data();
    job.features = static_cast<int>(x.shape(1));
    job.row_scale = row_scale ? row_scale->data() : nullptr;
    nb::gil_scoped_release release;
    multiply<float>(job, static_cast<std::int64_t>(rows_), static_cast<std::int64_t>(columns_),
                    col_scale ? col_scale->data() : nullptr, column_tile_, how_, threads);
  }

 private:
  Array<const std::int64_t> indptr_;
  Array<const std::int32_t> indices_;
  Maybe<const float> values_;
  Maybe<const std::int32_t> order_;
  std::size_t rows_ = 0;
  std::size_t columns_;
  int column_tile_;
  Variant how_;
  RowJob<float> job_;
};

template <class T>
void aggregate_parts(Array<const std::int64_t> over_ptr, Array<const std::int32_t> over_ids,
                     Maybe<const T> over_values, Maybe<const std::int64_t> ex_ptr,
                     Maybe<const std::int32_t> ex_ids, Maybe<const T> ex_values,
                     Maybe<const std::int32_t> order, Cube<const T> x, Cube<T> y,
                     Maybe<const T> row_scale, Maybe<const T> col_scale, bool self_loop,
                     int threads, int ahead, const std::string& registers) {
  const std::size_t rows = y.shape(0);
  const std::size_t S = x.shape(1);
  check_size(over_ptr, rows + 1, "over_indptr");
  check_end(over_ptr.data(), rows, over_ids.size(), "over_indptr");
  check_optional(over_values, over_ids.size() * S, "over_values");
  if (ex_ptr.has_value() != ex_ids.has_value()) reject("ex_indptr and ex_entries belong together");
  check_optional(ex_ptr, rows + 1, "ex_indptr");
  if (ex_ids) check_end(ex_ptr->data(), rows, ex_ids->size(), "ex_indptr");
  if (ex_ids) check_optional(ex_values, ex_ids->size(), "ex_values");
  check_optional(order, rows, "order");
  check_optional(row_scale, rows * S, "row_scale");
  check_optional(col_scale, x.shape(0) * S, "col_scale");
  if (y.shape(1) != S || y.shape(2) != x.shape(2)) reject("x and y differ in their last two sizes");
  if (self_loop && rows > x.shape(0)) reject("self_loop needs a column for every row");
  RowJob<T> job;
  job.over_ptr = over_ptr.data();
  job.over_ids = over_ids.data();
  job.over_values = pointer(over_values);
  job.ex_ptr = pointer(ex_ptr);
  job.ex_ids = ex_ids ? reinterpret_cast<const std::uint32_t*>(ex_ids->data()) : nullptr;
  job.ex_values = pointer(ex_values);
  job.order = pointer(order);
  job.x = x.data();
  job.y = y.data();
  job.snapshots = static_cast<int>(S);
  job.features = static_cast<int>(x.shape(2));
  job.row_scale = pointer(row_scale);
  job.self_loop = self_loop;
  const Variant how{ahead, kernels_of(registers)};
  nb::gil_scoped_release release;
  multiply(job, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(x.shape(0)),
           pointer(col_scale), 0, how, threads);
}

template <class T>
void define(nb::module_& m) {
  using namespace nb::literals;
  m.def("spmm", &spmm<T>, "indptr"_a.noconvert(), "indices"_a.noconvert(),
        "values"_a.noconvert().none(), "order"_a.noconvert().none(), "x"_a.noconvert(),
        "y"_a.noconvert(), "row_scale"_a.noconvert().none(), "col_scale"_a.noconvert().none(),
        "self_loop"_a, "threads"_a, "column_tile"_a = 0, "ahead"_a = -1, "registers"_a = "");
  m.def("aggregate_parts", &aggregate_parts<T>, "over_indptr"_a.noconvert(),
        "over_indices"_a.noconvert(), "over_values"_a.noconvert().none(),
        "ex_indptr"_a.noconvert().none(), "ex_entries"_a.noconvert().none(),
        "ex_values"_a.noconvert().none(), "order"_a.noconvert().none(), "x"_a.noconvert(),
        "y"_a.noconvert(), "row_scale"_a.noconvert().none(), "col_scale"_a.noconvert().none(),
        "self_loop"_a, "threads"_a, "ahead"_a = -1, "registers"_a = "");
}

}  // namespace

template <class T>
void multiply_rows(const RowJob<T>& job, std::int64_t rows, std::int64_t columns,
                   const T* col_scale, int threads) {
  multiply(job, rows, columns, col_scale, 0, Variant(), threads);
}
template void multiply_rows(const RowJob<float>&, std::int64_t, std::int64_t, const float*, int);
template void multiply_rows(const RowJob<double>&, std::int64_t, std::int64_t, const double*, int);

void bind_aggregate(nb::module_& m) {
  using namespace nb::literals;
  define<float>(m);
  define<double>(m);
  nb::class_<KeptProduct>(m, "KeptProduct", "`spmm` of one matrix, checked once.")
      .def(nb::init<Array<const std::int64_t>, Array<const std::int32_t>, Maybe<const float>,
                    Maybe<const std::int32_t>, std::size_t, bool, int, int, const std::string&>(),
           "indptr"_a.noconvert(), "indices"_a.noconvert(), "values"_a.noconvert().none(),
           "order"_a.noconvert().none(), "columns"_a, "self_loop"_a, "column_tile"_a = 0,
           "ahead"_a = -1, "registers"_a = "")
      .def("multiply", &KeptProduct::multiply_with, "x"_a.noconvert(), "y"_a.noconvert(),
           "row_scale"_a.noconvert().none(), "col_scale"_a.noconvert().none(), "threads"_a);
  m.def("aggregate_ahead", [](int entries) { chosen_ahead = entries; }, "entries"_a,
        "Ask for rows of x so many entries ahead, 0 for never, below 0 as width and caches say.");
  m.def("aggregate_registers", [](const std::string& name) { chosen_kernels = kernels_of(name); },
        "name"_a,
        "Force the kernels on these registers, or on the widest that are compiled below them; with "
        "'' calls choose for themselves.");
}

}  // namespace dgbench
