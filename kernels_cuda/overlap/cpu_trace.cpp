// How long every entry of a sequence of snapshots lives (PiPAD 4.1, the online graph analyzer).
//
// One pass over the rows answers for all groups of consecutive snapshots at once. Of each entry it
// notes in how many snapshots in a row it was held before (`back`) and will be held after (`ahead`).
// Snapshot k of the S snapshots from t then shares exactly its entries with back >= k and
// ahead >= S - 1 - k, so a group is taken apart by one filter per snapshot, without any merge.
// Numbers stop at 255; a group has 32 snapshots at most.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/caught.hpp"
#include "common/lists.hpp"
#include "common/partition_arguments.hpp"
#include "common/require.hpp"
#include "overlap/functors.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace dgbench {
namespace {

using Cpu = nb::device::cpu;
template <class T>
using Vector = VectorOn<T, Cpu>;
template <class T>
using Vectors = std::vector<Vector<T>>;
template <class T>
using Matrix = MatrixOn<T, Cpu>;

constexpr int64_t kRowChunk = 512;

std::uint8_t one_more(std::uint8_t count) { return count == 255 ? count : count + 1; }

// A topology of T snapshots, checked for sizes that fit.
struct Sequence {
  std::vector<const int64_t*> indptr;
  std::vector<const int32_t*> indices;
  int64_t rows = 0;

  Sequence(const Vectors<const int64_t>& offsets, const Vectors<const int32_t>& columns) {
    require(!offsets.empty() && offsets[0].size() >= 1, "indptr is empty");
    require_length("indices", static_cast<int64_t>(columns.size()),
                   static_cast<int64_t>(offsets.size()));
    rows = static_cast<int64_t>(offsets[0].size()) - 1;
    for (size_t t = 0; t < offsets.size(); ++t) {
      require_length("indptr[t]", static_cast<int64_t>(offsets[t].size()), rows + 1);
      check_offsets(offsets[t].data(), offsets[t].size(), columns[t].size(), "indptr[t]");
      indptr.push_back(offsets[t].data());
      indices.push_back(columns[t].data());
    }
  }

  int64_t steps() const { return static_cast<int64_t>(indptr.size()); }
  const int32_t* row(int64_t t, int64_t r) const { return indices[t] + indptr[t][r]; }
  int64_t length(int64_t t, int64_t r) const { return indptr[t][r + 1] - indptr[t][r]; }
};

template <class T>
std::vector<T*> pointers(const Vectors<T>& arrays, const Sequence& sequence, const char* name) {
  require_length(name, static_cast<int64_t>(arrays.size()), sequence.steps());
  std::vector<T*> out;
  for (int64_t t = 0; t < sequence.steps(); ++t) {
    require_length(name, static_cast<int64_t>(arrays[t].size()),
                   sequence.indptr[t][sequence.rows]);
    out.push_back(arrays[t].data());
  }
  return out;
}

// An entry of one row that some of the last `window` snapshots held.
struct Seen {
  int32_t column;
  int32_t last;   // snapshot that held it last
  int32_t since;  // first snapshot of the unbroken run up to `last`
};

// Follows one row through all snapshots. `gaps[t][g]` counts the entries of snapshot t that were
// last held g snapshots before, g < window, or not within the window (g = window).
class RowTracer {
 public:
  RowTracer(const Sequence& sequence, int64_t window, int64_t slice_cap,
            const std::vector<std::uint8_t*>& back, const std::vector<std::uint8_t*>& ahead)
      : s_(sequence), window_(window), cap_(slice_cap), back_(back), ahead_(ahead) {}

  void operator()(int64_t r, int64_t* gaps) {
    bool any = false;
    for (int64_t t = 0; t < s_.steps() && !any; ++t) any = s_.length(t, r) > 0;
    if (!any) return;
    seen_.clear();
    for (int64_t t = 0; t < s_.steps(); ++t) {
      advance(t, r, gaps + t * (window_ + 1));
      if (cap_ > 0) compare_slices(t, r);
    }
    for (int64_t t = s_.steps() - 1; t >= 0; --t) look_ahead(t, r);
  }

 private:
  void advance(int64_t t, int64_t r, int64_t* gaps) {
    const int32_t* column = s_.row(t, r);
    const int64_t count = s_.length(t, r);
    std::uint8_t* back = back_[t] + s_.indptr[t][r];
    const auto now = static_cast<int32_t>(t);
    next_.clear();
    size_t old = 0;
    const auto keep_lost = [&](const Seen& entry) {
      if (t + 1 - entry.last < window_) next_.push_back(entry);
    };
    for (int64_t e = 0; e < count; ++e) {
      while (old < seen_.size() && seen_[old].column < column[e]) keep_lost(seen_[old++]);
      Seen entry{column[e], now, now};
      int64_t gap = window_;
      if (old < seen_.size() && seen_[old].column == column[e]) {
        gap = t - seen_[old].last;
        if (gap == 1) entry.since = seen_[old].since;
        ++old;
      }
      ++gaps[std::min(gap, window_)];
      back[e] = static_cast<std::uint8_t>(std::min<int32_t>(255, now - entry.since));
      next_.push_back(entry);
    }
    while (old < seen_.size()) keep_lost(seen_[old++]);
    seen_.swap(next_);
  }

  // Whole slices only: an entry goes back as far as its slice was the same, at the same place.
  void compare_slices(int64_t t, int64_t r) {
    const int64_t count = s_.length(t, r);
    const int64_t before = t > 0 ? s_.length(t - 1, r) : 0;
    std::uint8_t* back = back_[t] + s_.indptr[t][r];
    for (int64_t begin = 0; begin < count; begin += cap_) {
      const int64_t size = std::min(cap_, count - begin);
      const bool same = same_slice(t, r, begin, size, before);
      const std::uint8_t value = same ? one_more(back_[t - 1][s_.indptr[t - 1][r] + begin]) : 0;
      std::fill(back + begin, back + begin + size, value);
    }
  }

  bool same_slice(int64_t t, int64_t r, int64_t begin, int64_t size, int64_t before) const {
    if (std::min(cap_, before - begin) != size) return false;
    const int32_t* here = s_.row(t, r) + begin;
    return std::equal(here, here + size, s_.row(t - 1, r) + begin);
  }

  // back >= 1 in the next snapshot says that an entry goes on; the two lists of such entries are
  // the same, in the same order.
  void look_ahead(int64_t t, int64_t r) {
    const int64_t count = s_.length(t, r);
    std::uint8_t* ahead = ahead_[t] + s_.indptr[t][r];
    if (t + 1 == s_.steps()) {
      std::fill(ahead, ahead + count, std::uint8_t{0});
      return;
    }
    const int32_t* column = s_.row(t, r);
    const int32_t* other = s_.row(t + 1, r);
    const std::uint8_t* back = back_[t + 1] + s_.indptr[t + 1][r];
    const std::uint8_t* later = ahead_[t + 1] + s_.indptr[t + 1][r];
    const int64_t stop = s_.length(t + 1, r);
    int64_t o = 0;
    for (int64_t e = 0; e < count; ++e) {
      while (o < stop && (back[o] == 0 || other[o] < column[e])) ++o;
      const bool goes_on = o < stop && other[o] == column[e];
      ahead[e] = goes_on ? one_more(later[o]) : std::uint8_t{0};
    }
  }

  const Sequence& s_;
  const int64_t window_;
  const int64_t cap_;
  const std::vector<std::uint8_t*>& back_;
  const std::vector<std::uint8_t*>& ahead_;
  std::vector<Seen> seen_, next_;
};

// Rows [first, stop) of every snapshot; adds to `gaps` int64[T, window + 1].
void trace_rows(Vectors<const int64_t> indptr, Vectors<const int32_t> indices, int64_t window,
                int64_t slice_cap, Vectors<std::uint8_t> back, Vectors<std::uint8_t> ahead,
                Matrix<int64_t> gaps, int64_t first, int64_t stop, int threads) {
  const Sequence sequence(indptr, indices);
  const auto backs = pointers(back, sequence, "back");
  const auto aheads = pointers(ahead, sequence, "ahead");
  require(window >= 1 && window <= kMaxSnapshots && slice_cap >= 0, "window or slice_cap is wrong");
  require(first >= 0 && first <= stop && stop <= sequence.rows, "rows are out of range");
  require_length("gaps", static_cast<int64_t>(gaps.shape(0)), sequence.steps());
  require_length("gaps row", static_cast<int64_t>(gaps.shape(1)), window + 1);
  nb::gil_scoped_release release;
  Caught caught;
#pragma omp parallel num_threads(std::max(1, threads))
  {
    std::vector<int64_t> mine;
    caught.run([&] { mine.assign(gaps.size(), 0); });
    RowTracer tracer(sequence, window, slice_cap, backs, aheads);
#pragma omp for schedule(dynamic, kRowChunk)
    for (int64_t r = first; r < stop; ++r) caught.run([&] { tracer(r, mine.data()); });
#pragma omp critical
    for (size_t i = 0; i < mine.size(); ++i) gaps.data()[i] += mine[i];
  }
  caught.rethrow();
}

// ceil(n / cap) where rows are mostly short.
int64_t slices_of(int64_t n, int64_t cap) {
  return n <= cap ? static_cast<int64_t>(n > 0) : (n + cap - 1) / cap;
}

// Counts of rows [first, stop) for the group of sizes[i] snapshots that starts at t, added to
// the flat found int64[sizes, T, 3]: shared entries, slices of the overlap, slices of all exclusive parts.
void count_groups(Vectors<const int64_t> indptr, Vectors<const std::uint8_t> ahead,
                  std::vector<int64_t> sizes, int64_t cap, Vector<int64_t> found, int64_t first,
                  int64_t stop, int threads) {
  const auto steps = static_cast<int64_t>(indptr.size());
  const auto options = static_cast<int64_t>(sizes.size());
  require(steps >= 1 && indptr[0].size() >= 1, "indptr is empty");
  const auto rows = static_cast<int64_t>(indptr[0].size()) - 1;
  require(cap >= 1 && first >= 0 && first <= stop && stop <= rows, "rows or cap are out of range");
  require_length("ahead", static_cast<int64_t>(ahead.size()), steps);
  require_length("found", static_cast<int64_t>(found.size()), options * steps * 3);
  std::vector<const int64_t*> offsets;
  std::vector<const std::uint8_t*> lives;
  for (int64_t t = 0; t < steps; ++t) {
    require_length("indptr[t]", static_cast<int64_t>(indptr[t].size()), rows + 1);
    check_offsets(indptr[t].data(), indptr[t].size(), ahead[t].size(), "indptr[t]");
    offsets.push_back(indptr[t].data());
    lives.push_back(ahead[t].data());
  }
  for (const int64_t size : sizes) {
    require(size >= 1 && size <= kMaxSnapshots && size <= steps, "a size is out of range");
  }
  nb::gil_scoped_release release;
  Caught caught;
#pragma omp parallel num_threads(std::max(1, threads))
  {
    std::vector<int64_t> mine;
    std::vector<int64_t> length;
    std::vector<int64_t> whole;  // slices of snapshots before t
    caught.run([&] {
      mine.assign(found.size(), 0);
      length.resize(steps);
      whole.resize(steps + 1);
    });
#pragma omp for schedule(dynamic, kRowChunk)
    for (int64_t r = first; r < stop; ++r) {
      if (caught.any()) continue;
      whole[0] = 0;
      for (int64_t t = 0; t < steps; ++t) {
        length[t] = offsets[t][r + 1] - offsets[t][r];
        whole[t + 1] = whole[t] + slices_of(length[t], cap);
      }
      if (whole[steps] == 0) continue;
      for (int64_t i = 0; i < options; ++i) {
        const int64_t size = sizes[i];
        for (int64_t t = 0; t + size <= steps; ++t) {
          int64_t* to = mine.data() + (i * steps + t) * 3;
          const std::uint8_t* life = lives[t] + offsets[t][r];
          int64_t shared = 0;
          for (int64_t e = 0; e < length[t]; ++e) shared += life[e] >= size - 1;
          if (shared == 0) {
            to[2] += whole[t + size] - whole[t];
            continue;
          }
          to[0] += shared;
          to[1] += slices_of(shared, cap);
          for (int64_t k = t; k < t + size; ++k) to[2] += slices_of(length[k] - shared, cap);
        }
      }
    }
#pragma omp critical
    for (size_t i = 0; i < mine.size(); ++i) found.data()[i] += mine[i];
  }
  caught.rethrow();
}

// Takes the group of S snapshots apart. `columns` int32[shared + sum(nnz - shared) + 1] receives the
// overlap, then each exclusive part; its last place is scratch. offsets int64[S + 1, rows + 1]
// likewise. With values float32[nnz] each: over_values float32[shared, S], rest_values the others.
void split_traced(Vectors<const int64_t> indptr, Vectors<const int32_t> indices,
                  Vectors<const float> values, Vectors<const std::uint8_t> back,
                  Vectors<const std::uint8_t> ahead, int64_t shared, Matrix<int64_t> offsets,
                  Vector<int32_t> columns, std::optional<Matrix<float>> over_values,
                  std::optional<Vector<float>> rest_values) {
  const Sequence s(indptr, indices);
  const int64_t count = s.steps();
  require(count <= kMaxSnapshots, "too many snapshots");
  const auto backs = pointers(back, s, "back");
  const auto aheads = pointers(ahead, s, "ahead");
  int64_t rest = 0;
  for (int64_t k = 0; k < count; ++k) rest += s.indptr[k][s.rows] - shared;
  require_length("offsets", static_cast<int64_t>(offsets.shape(0)), count + 1);
  require_length("offsets row", static_cast<int64_t>(offsets.shape(1)), s.rows + 1);
  require_length("columns", static_cast<int64_t>(columns.size()), shared + rest + 1);
  const bool weighted = over_values.has_value();
  require(weighted == rest_values.has_value(), "values of one kind only");
  require_length("values", static_cast<int64_t>(values.size()), weighted ? count : 0);
  if (weighted) {
    for (int64_t k = 0; k < count; ++k) {
      require_length("values[i]", static_cast<int64_t>(values[k].size()), s.indptr[k][s.rows]);
    }
    require_length("over_values", static_cast<int64_t>(over_values->size()), shared * count);
    require_length("rest_values", static_cast<int64_t>(rest_values->size()), rest);
  }
  nb::gil_scoped_release release;
  for (int64_t k = 0; k < count; ++k) {  // a wrong `shared` would write out of bounds
    const auto before = static_cast<std::uint8_t>(k), after = static_cast<std::uint8_t>(count - 1 - k);
    int64_t held = 0;
    for (int64_t e = 0; e < s.indptr[k][s.rows]; ++e) {
      held += (backs[k][e] >= before) & (aheads[k][e] >= after);
    }
    require_length("shared", shared, held);
  }
  const int64_t stride = s.rows + 1;
  int64_t* over = offsets.data();
  int32_t* to = columns.data();
  over[0] = 0;
  int64_t n = 0;
  for (int64_t r = 0; r < s.rows; ++r) {
    for (int64_t e = s.indptr[0][r]; e < s.indptr[0][r + 1]; ++e) {
      to[n] = s.indices[0][e];
      n += aheads[0][e] >= count - 1;
    }
    over[r + 1] = n;
  }
  to += shared;
  int64_t written = 0;
  for (int64_t k = 0; k < count; ++k) {
    const int64_t nnz = s.indptr[k][s.rows];
    int64_t* own = over + (k + 1) * stride;
    for (int64_t r = 0; r < stride; ++r) own[r] = s.indptr[k][r] - over[r];
    int64_t kept = 0;
    int64_t taken = 0;
    for (int64_t e = 0; e < nnz; ++e) {
      const bool all = (backs[k][e] >= k) & (aheads[k][e] >= count - 1 - k);
      to[kept] = s.indices[k][e];
      if (weighted) {
        if (all) {
          over_values->data()[taken * count + k] = values[k].data()[e];
        } else {
          rest_values->data()[written + kept] = values[k].data()[e];
        }
        taken += all;
      }
      kept += !all;
    }
    to += kept;
    written += kept;
  }
}

}  // namespace

void bind_trace(nb::module_& m) {
  m.def("trace_rows", &trace_rows, "indptr"_a.noconvert(), "indices"_a.noconvert(), "window"_a,
        "slice_cap"_a, "back"_a.noconvert(), "ahead"_a.noconvert(), "gaps"_a.noconvert(),
        "first"_a, "stop"_a, "threads"_a);
  m.def("count_groups", &count_groups, "indptr"_a.noconvert(), "ahead"_a.noconvert(), "sizes"_a,
        "cap"_a, "found"_a.noconvert(), "first"_a, "stop"_a, "threads"_a);
  m.def("split_traced", &split_traced, "indptr"_a.noconvert(), "indices"_a.noconvert(),
        "values"_a.noconvert(), "back"_a.noconvert(), "ahead"_a.noconvert(), "shared"_a,
        "offsets"_a.noconvert(), "columns"_a.noconvert(), "over_values"_a.noconvert().none(),
        "rest_values"_a.noconvert().none());
}

}  // namespace dgbench
