// Graph attention over the rows of a matrix, forward and backward, without atomics:
//
//   attend_rows_forward(indptr, indices, values [C, K, D], source [C, K], target [R, K], slope,
//                       place, out [R, K, D], stats, positive, threads)
//   attend_rows_backward(..., receivers_ptr, receivers, grad, out, stats, positive, entry,
//                        grad_values, grad_source, grad_target, threads)
//
// A thread takes a few hundred entries at a time through three passes that each stay in cache:
// scores (which also asks for the rows of values), exponentials on whole vectors, sums. Forward and
// the derivative to targets go by rows, the derivatives to values and sources by columns, over the
// transposed matrix; shares are made again from what the forward pass kept of a row. Every sum has
// one owner and a fixed order, so the number of threads does not show.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <atomic>
#include <cmath>
#include <new>
#include <type_traits>

#include "attention/cpu_head_columns.hpp"
#include "attention/cpu_vector_exp.hpp"
#include "attention/functors.hpp"
#include "common/check.hpp"
#include "common/work_division.hpp"
#include "scan/cpu_common.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace dgbench {
namespace {

constexpr std::int64_t kEntries = 256;  // at a time; with rows of 128 bytes they stay in L1
constexpr std::int64_t kPieces = 64;    // that rows are cut into, for threads to share out

template <class T>
using Type = std::remove_pointer_t<T>;

inline void prefetch(const float* row, std::int64_t floats) {
  for (std::int64_t j = 0; j < floats; j += 16) __builtin_prefetch(row + j);
}

// Numbers per entry and head, kept for the next call of the same thread.
struct ThreadScratch {
  scan::Scratch<float> memory;
  float* part[4] = {};
  std::int64_t entries = 0;
  bool grow(std::int64_t count, std::int64_t heads) {
    if (count * heads <= entries) return true;
    const std::int64_t each = (std::max(count, 2 * kEntries) * heads + 63) / 64 * 64;
    float* base = memory.try_get(4 * each);
    entries = base ? each : 0;
    for (int i = 0; i < 4 && base; ++i) part[i] = base + i * each;
    return base != nullptr;
  }
};

// Runs body(begin, end, scratch) for stretches of about kEntries entries; `offsets` [count + 1].
template <class Body>
void each_stretch(const std::int64_t* offsets, std::int64_t count, std::int64_t heads, int threads,
                  const Body& body) {
  const auto cost = [&](std::int64_t r) { return 4 * offsets[r] + r; };
  const std::int64_t work = cost(count);
  const std::int64_t pieces = std::max<std::int64_t>(1, std::min(kPieces, work / 2048));
  std::atomic<bool> failed{false};
#pragma omp parallel num_threads(std::max(1, threads)) if (work > kSerialWork && threads > 1)
  {
    static thread_local ThreadScratch scratch;
#pragma omp for schedule(dynamic, 1)
    for (std::int64_t piece = 0; piece < pieces; ++piece) {
      const std::int64_t stop = chunk_start(count, work, piece + 1, pieces, cost);
      for (std::int64_t at = chunk_start(count, work, piece, pieces, cost); at < stop;) {
        std::int64_t end = at + 1;
        const auto entries = [&](std::int64_t e) { return offsets[e] - offsets[at] + e - at; };
        while (end < stop && entries(end + 1) <= kEntries) ++end;
        if (!scratch.grow(entries(end), heads)) {
          failed = true;
          break;
        }
        body(at, end, scratch);
        at = end;
      }
    }
  }
  if (failed) throw std::bad_alloc();
}

// Scores of row v to share[0 ..): first the row itself, then its neighbours; less the largest one.
// Returns whether scores of both signs are among them.
inline bool score_row(const AttendRows& a, std::int64_t v, int k, float* share, float* largest) {
  const int step = a.heads;
  const float target = a.target[v * a.heads + k];
  const std::int64_t first = a.indptr[v], count = a.indptr[v + 1] - first;
  float top = target + a.source[v * a.source_row + k];
  bool above = top > 0.0f, below = !above;
  top = leaky(top, a.slope);
  share[0] = top;
  for (std::int64_t j = 0; j < count; ++j) {
    const float raw = target + a.source[a.indices[first + j] * a.source_row + k];
    above |= raw > 0.0f;
    below |= !(raw > 0.0f);
    const float score = leaky(raw, a.slope);
    share[(j + 1) * step] = score;
    top = score > top ? score : top;
  }
  for (std::int64_t j = 0; j <= count; ++j) share[j * step] -= top;
  *largest = top;
  return above && below;
}

void forward(const AttendRows& a, std::int64_t begin, std::int64_t end, ThreadScratch& scratch) {
  const int heads = a.heads;
  const std::int64_t pitch = std::int64_t(heads) * a.width;
  constexpr std::int64_t kAhead = 24;
  float* const share = scratch.part[0];
  const std::int64_t last = a.indptr[a.rows];
  std::int64_t n = 0;
  for (std::int64_t v = begin; v < end; ++v) {
    const std::int64_t first = a.indptr[v], count = a.indptr[v + 1] - first;
    if (count == 0) {
      std::copy_n(a.values + v * a.values_row, pitch, a.out + v * pitch);
      continue;
    }
    prefetch(a.values + v * a.values_row, pitch);
    for (std::int64_t e = first; e < first + count; ++e) {
      if (e + kAhead < last) __builtin_prefetch(a.source + a.indices[e + kAhead] * a.source_row);
      prefetch(a.values + a.indices[e] * a.values_row, pitch);
    }
    for (int k = 0; k < heads; ++k) {
      float largest;
      // The sign note passes through part[1], which is free until the sums.
      scratch.part[1][n * heads + k] = score_row(a, v, k, share + n * heads + k, &largest);
      scratch.part[2][n * heads + k] = largest;
    }
    n += count + 1;
  }
  exp_below_zero(share, n * heads);
  n = 0;
  for (std::int64_t v = begin; v < end; ++v) {
    const std::int64_t first = a.indptr[v], count = a.indptr[v + 1] - first;
    if (count == 0) continue;
    const std::int32_t* ids = a.indices + first;
    for (int k = 0; k < heads; ++k) {
      float* const w = share + n * heads + k;
      const bool mixed = scratch.part[1][n * heads + k] != 0.0f && a.stats;
      double sum = 0;
      for (std::int64_t j = 0; j <= count; ++j) sum += w[j * heads];
      const auto scale = static_cast<float>(1 / sum);
      const float target = a.target[v * heads + k];
      const auto source = [&](std::int64_t u) { return a.source[u * a.source_row + k]; };
      float positive = mixed ? 0.0f : kOneSign;
      if (mixed) {
        // Shares over scores that are not positive get a minus sign, which the sums take off again.
        for (std::int64_t j = 0; j <= count; ++j) {
          const bool above = target + source(j == 0 ? v : ids[j - 1]) > 0.0f;
          const float s = w[j * heads] * scale;
          positive += above ? s : 0.0f;
          w[j * heads] = above ? s : -s;
        }
      }
      if (a.stats) {
        float* stats = a.stats + (v * heads + k) * 3;
        stats[0] = scratch.part[2][n * heads + k];
        stats[1] = scale;
        stats[2] = positive;
      }
      each_tile(a.width, [&](int at, int some, auto* type) {
        using Part = Type<decltype(type)>;
        const float* const x = a.values + std::int64_t(k) * a.width + at;
        float* const out = a.out + v * pitch + std::int64_t(k) * a.width + at;
        Part sums(some);
        if (!mixed) {
          sums.add(w[0] * scale, x + v * a.values_row);
          for (std::int64_t j = 0; j < count; ++j) {
            sums.add(w[(j + 1) * heads] * scale, x + ids[j] * a.values_row);
          }
        } else {
          Part over(some);
          for (std::int64_t j = 0; j <= count; ++j) {
            const float s = w[j * heads];
            const float* row = x + (j == 0 ? v : ids[j - 1]) * a.values_row;
            if (std::signbit(s)) {
              sums.add(-s, row);
            } else {
              over.add(s, row);
            }
          }
          over.store(a.positive + a.place[v] * pitch + std::int64_t(k) * a.width + at);
          sums.plus(over);
        }
        sums.store(out);
      });
    }
    n += count + 1;
  }
}

// Derivatives to targets, and what the columns need of each row.
void backward_rows(const AttendRowsGrad& b, std::int64_t begin, std::int64_t end) {
  const AttendRows& a = b.in;
  const std::int64_t pitch = std::int64_t(a.heads) * a.width;
  for (std::int64_t v = begin; v < end; ++v) {
    const bool alone = a.indptr[v] == a.indptr[v + 1];
    for (int k = 0; k < a.heads; ++k) {
      const std::int64_t i = v * a.heads + k;
      b.grad_target[i] = 0.0f;
      if (alone) continue;
      const std::int64_t at = std::int64_t(k) * a.width;
      const float* stats = a.stats + 3 * i;
      const bool mixed = stats[2] != kOneSign;
      float whole = 0.0f, over = 0.0f;
      each_tile(a.width, [&](int column, int some, auto* type) {
        Type<decltype(type)> grad(some);
        grad.load(b.grad + v * pitch + at + column);
        whole += grad.dot(a.out + v * pitch + at + column);
        if (mixed) over += grad.dot(a.positive + a.place[v] * pitch + at + column);
      });
      float* entry = b.entry + 4 * i;
      entry[0] = a.target[i];
      entry[1] = stats[0];
      entry[2] = stats[1];
      entry[3] = whole;
      if (mixed) b.grad_target[i] = (1.0f - a.slope) * (over - stats[2] * whole);
    }
  }
}

// Derivatives to values and sources of columns [begin, end).
void backward_columns(const AttendRowsGrad& b, std::int64_t begin, std::int64_t end,
                      ThreadScratch& scratch) {
  const AttendRows& a = b.in;
  const int heads = a.heads;
  const std::int64_t pitch = std::int64_t(heads) * a.width;
  constexpr std::int64_t kAhead = 16;
  float *const share = scratch.part[0], *const scale = scratch.part[1],
               *const pull = scratch.part[2];
  const std::int64_t last = b.receivers_ptr[a.columns];
  const auto has_loop = [&](std::int64_t u) {
    return u < a.rows && a.indptr[u] != a.indptr[u + 1];
  };
  std::int64_t n = 0;
  for (std::int64_t u = begin; u < end; ++u) {
    const std::int64_t first = b.receivers_ptr[u], stop = b.receivers_ptr[u + 1];
    const bool loop = has_loop(u);
    const std::int64_t entries = stop - first + loop;
    if (entries == 0) continue;
    for (std::int64_t e = first; e < stop && e + kAhead < last; ++e) {
      const std::int64_t next = b.receivers[e + kAhead];
      __builtin_prefetch(b.entry + next * heads * 4);
      prefetch(b.grad + next * pitch, pitch);
    }
    for (int k = 0; k < heads; ++k) {
      const float source = a.source[u * a.source_row + k];
      each_tile(a.width, [&](int at, int some, auto* type) {
        Type<decltype(type)> own(some);
        const std::int64_t column = std::int64_t(k) * a.width + at;
        own.load(a.values + u * a.values_row + column);
        std::int64_t i = n * heads + k;
        const auto one = [&](std::int64_t v) {
          const float dot = own.dot(b.grad + v * pitch + column);
          if (at == 0) {
            const float* entry = b.entry + (v * heads + k) * 4;
            const float raw = entry[0] + source;
            const bool above = raw > 0.0f;
            share[i] = (above ? raw : a.slope * raw) - entry[1];
            scale[i] = above ? entry[2] : -entry[2];  // the sign is the score's
            pull[i] = dot - entry[3];
          } else {
            pull[i] += dot;
          }
          i += heads;
        };
        if (loop) one(u);
        for (std::int64_t e = first; e < stop; ++e) one(b.receivers[e]);
      });
    }
    n += entries;
  }
  exp_below_zero(share, n * heads);
  for (std::int64_t i = 0; i < n * heads; ++i) {
    const float s = share[i] * std::fabs(scale[i]);
    pull[i] *= scale[i] > 0.0f ? s : s * a.slope;
    share[i] = s;
  }
  n = 0;
  for (std::int64_t u = begin; u < end; ++u) {
    const std::int64_t first = b.receivers_ptr[u], stop = b.receivers_ptr[u + 1];
    const bool loop = has_loop(u);
    const bool alone = u < a.rows && !loop;  // its own share is 1, whatever the scores
    for (int k = 0; k < heads; ++k) {
      double to_source = 0;
      const float* p = pull + n * heads + k;
      for (std::int64_t j = 0; j < stop - first + loop; ++j) to_source += p[j * heads];
      b.grad_source[u * heads + k] = static_cast<float>(to_source);
      each_tile(a.width, [&](int at, int some, auto* type) {
        Type<decltype(type)> sums(some);
        const float* grad = b.grad + std::int64_t(k) * a.width + at;
        const float* w = share + n * heads + k;
        if (alone) sums.load(grad + u * pitch);
        if (loop) {
          sums.add(*w, grad + u * pitch);
          w += heads;
        }
        for (std::int64_t e = first; e < stop; ++e, w += heads) {
          sums.add(*w, grad + b.receivers[e] * pitch);
        }
        sums.store(b.grad_values + u * pitch + std::int64_t(k) * a.width + at);
      });
    }
    n += stop - first + loop;
  }
}

using Rows3 = nb::ndarray<const float, nb::ndim<3>, nb::device::cpu>;  // rows may lie apart
using Rows2 = nb::ndarray<const float, nb::ndim<2>, nb::device::cpu>;

AttendRows arguments(Array<const std::int64_t>& indptr, Array<const std::int32_t>& indices,
                     Rows3& values, Rows2& source, Matrix<const float>& target, float slope,
                     Array<const std::int32_t>& place) {
  if (indptr.size() == 0) reject("indptr is empty, expected rows + 1 offsets");
  AttendRows a{};
  a.indptr = indptr.data();
  a.indices = indices.data();
  a.rows = static_cast<std::int64_t>(indptr.size()) - 1;
  a.columns = static_cast<std::int64_t>(values.shape(0));
  a.heads = static_cast<std::int32_t>(values.shape(1));
  a.width = static_cast<std::int32_t>(values.shape(2));
  if (a.columns < a.rows) reject("values has fewer rows than indptr");
  check_end(a.indptr, static_cast<std::size_t>(a.rows), indices.size(), "indptr");
  if (a.columns > 0 && a.width > 0 &&
      ((a.width > 1 && values.stride(2) != 1) || (a.heads > 1 && values.stride(1) != a.width))) {
    reject("the rows of values must be dense");
  }
  if (source.shape(0) != values.shape(0) || source.shape(1) != values.shape(1) ||
      (a.heads > 1 && source.stride(1) != 1)) {
    reject("source must be [C, K] with dense rows");
  }
  const auto scores = static_cast<std::size_t>(a.rows * a.heads);
  check_size(target, scores, "target");
  check_size(place, static_cast<std::size_t>(a.rows), "place");
  a.values = values.data();
  a.values_row = values.stride(0);
  a.source = source.data();
  a.source_row = source.stride(0);
  a.target = target.data();
  a.slope = slope;
  a.place = place.data();
  return a;
}

// Every row with neighbours has a place in `positive`.
void check_places(const AttendRows& a, std::size_t size) {
  const std::int64_t row = std::int64_t{a.heads} * a.width;
  const auto places = row > 0 ? static_cast<std::int64_t>(size) / row : 0;
  bool good = row == 0 || static_cast<std::int64_t>(size) == places * row;
  for (std::int64_t v = 0; row > 0 && v < a.rows; ++v) {
    const bool busy = a.indptr[v] != a.indptr[v + 1];
    good &= !busy || (a.place[v] >= 0 && a.place[v] < places);
  }
  if (!good) reject("place must give every row with neighbours a row of positive");
}

void attend_rows_forward(Array<const std::int64_t> indptr, Array<const std::int32_t> indices,
                         Rows3 values, Rows2 source, Matrix<const float> target, float slope,
                         Array<const std::int32_t> place, Array<float> out, Maybe<float> stats,
                         Maybe<float> positive, int threads) {
  AttendRows a = arguments(indptr, indices, values, source, target, slope, place);
  const auto scores = static_cast<std::size_t>(a.rows * a.heads);
  check_size(out, scores * a.width, "out");
  check_optional(stats, 3 * scores, "stats");
  if (positive) check_places(a, positive->size());
  if (stats.has_value() != positive.has_value()) reject("stats and positive belong together");
  a.out = out.data();
  a.stats = stats ? stats->data() : nullptr;
  a.positive = positive ? positive->data() : nullptr;
  if (a.rows == 0 || a.heads == 0 || a.width == 0) return;
  nb::gil_scoped_release release;
  each_stretch(a.indptr, a.rows, a.heads, threads,
               [&](std::int64_t begin, std::int64_t end, ThreadScratch& scratch) {
                 forward(a, begin, end, scratch);
               });
}

void attend_rows_backward(Array<const std::int64_t> indptr, Array<const std::int32_t> indices,
                          Rows3 values, Rows2 source, Matrix<const float> target, float slope,
                          Array<const std::int32_t> place,
                          Array<const std::int64_t> receivers_ptr,
                          Array<const std::int32_t> receivers, Array<const float> grad,
                          Array<float> out, Array<float> stats, Array<float> positive,
                          Array<float> entry, Array<float> grad_values, Array<float> grad_source,
                          Array<float> grad_target, int threads) {
  AttendRowsGrad b{};
  b.in = arguments(indptr, indices, values, source, target, slope, place);
  AttendRows& a = b.in;
  const auto scores = static_cast<std::size_t>(a.rows * a.heads);
  const auto columns = static_cast<std::size_t>(a.columns * a.heads);
  check_size(receivers_ptr, static_cast<std::size_t>(a.columns) + 1, "receivers_ptr");
  check_size(receivers, indices.size(), "receivers");
  check_end(receivers_ptr.data(), static_cast<std::size_t>(a.columns), receivers.size(),
            "receivers_ptr");
  check_size(grad, scores * a.width, "grad");
  check_size(out, scores * a.width, "out");
  check_size(stats, 3 * scores, "stats");
  check_places(a, positive.size());
  check_size(entry, 4 * scores, "entry");
  check_size(grad_values, columns * a.width, "grad_values");
  check_size(grad_source, columns, "grad_source");
  check_size(grad_target, scores, "grad_target");
  a.out = out.data();
  a.stats = stats.data();
  a.positive = positive.data();
  b.receivers_ptr = receivers_ptr.data();
  b.receivers = receivers.data();
  b.grad = grad.data();
  b.entry = entry.data();
  b.grad_values = grad_values.data();
  b.grad_source = grad_source.data();
  b.grad_target = grad_target.data();
  if (a.columns == 0 || a.heads == 0 || a.width == 0) return;
  nb::gil_scoped_release release;
  each_stretch(
      a.indptr, a.rows, a.heads, threads,
      [&](std::int64_t begin, std::int64_t end, ThreadScratch&) { backward_rows(b, begin, end); });
  each_stretch(b.receivers_ptr, a.columns, a.heads, threads,
               [&](std::int64_t begin, std::int64_t end, ThreadScratch& scratch) {
                 backward_columns(b, begin, end, scratch);
               });
}

}  // namespace

void bind_attend_rows(nb::module_& m) {
  m.def("attend_rows_forward", &attend_rows_forward, "indptr"_a.noconvert(),
        "indices"_a.noconvert(), "values"_a.noconvert(), "source"_a.noconvert(),
        "target"_a.noconvert(), "slope"_a, "place"_a.noconvert(), "out"_a.noconvert(),
        "stats"_a.noconvert().none(), "positive"_a.noconvert().none(), "threads"_a);
  m.def("attend_rows_backward", &attend_rows_backward, "indptr"_a.noconvert(),
        "indices"_a.noconvert(), "values"_a.noconvert(), "source"_a.noconvert(),
        "target"_a.noconvert(), "slope"_a, "place"_a.noconvert(), "receivers_ptr"_a.noconvert(),
        "receivers"_a.noconvert(), "grad"_a.noconvert(), "out"_a.noconvert(),
        "stats"_a.noconvert(), "positive"_a.noconvert(), "entry"_a.noconvert(),
        "grad_values"_a.noconvert(), "grad_source"_a.noconvert(), "grad_target"_a.noconvert(),
        "threads"_a);
}

}  // namespace dgbench
