// Graph difference (ESDG section 3.2) on the host: comparing two snapshots, and rebuilding one.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>

#include <algorithm>
#include <vector>

#include "common/caught.hpp"
#include "common/check.hpp"
#include "common/work_division.hpp"
#include "difference/arguments.hpp"
#include "difference/cpu_merge.hpp"
#include "difference/cpu_rebuild.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace dgbench {
namespace {

using Cpu = nb::device::cpu;
using Offsets = VectorOn<const std::int64_t, Cpu>;
using Columns = VectorOn<const std::int32_t, Cpu>;

// As check_offsets, but over all rows without a way out, which the compiler turns into vectors: on a
// hypersparse snapshot the offsets are nearly all there is to read.
void check_rows(const Offsets& indptr, std::size_t entries, const char* name) {
  const std::int64_t* at = indptr.data();
  const std::size_t count = indptr.size();
  require(count >= 1, std::string(name) + " is empty, expected rows + 1 offsets");
  std::int64_t falls = 0;
  for (std::size_t i = 1; i < count; ++i) falls |= at[i] - at[i - 1];
  if (at[0] != 0 || at[count - 1] != static_cast<std::int64_t>(entries) || falls < 0) {
    reject(std::string(name) + " must start at 0, never fall and end at " +
           std::to_string(entries));
  }
}

// Two matrices of one shape whose offsets were checked.
struct Two {
  SortedRows a;
  SortedRows b;
  std::int64_t rows;

  Two(const Offsets& a_indptr, const Columns& a_indices, const Offsets& b_indptr,
      const Columns& b_indices)
      : a{a_indptr.data(), a_indices.data()},
        b{b_indptr.data(), b_indices.data()},
        rows(static_cast<std::int64_t>(a_indptr.size()) - 1) {
    check_rows(a_indptr, a_indices.size(), "indptr");
    require_length("second indptr", static_cast<std::int64_t>(b_indptr.size()), rows + 1);
    check_rows(b_indptr, b_indices.size(), "second indptr");
  }

  // Empty rows are looked at too, eight at a time.
  std::int64_t cost(std::int64_t row) const { return a.indptr[row] + b.indptr[row] + row / 8; }
};

template <class Changes>
struct Part {
  Changes removed;
  Changes added;
};

template <class Changes>
std::vector<Part<Changes>> compare(const Two& two, int threads) {
  const std::int64_t work = two.cost(two.rows);
  const std::int64_t chunks = work < kSerialWork ? 1 : count_chunks(work, threads);
  std::vector<Part<Changes>> parts;
  std::vector<std::int64_t> first(chunks + 1);
  for (std::int64_t c = 0; c <= chunks; ++c) {
    first[c] = chunk_start(two.rows, work, c, chunks,
                           [&](std::int64_t row) { return two.cost(row); });
  }
  for (std::int64_t c = 0; c < chunks; ++c) {
    const std::int64_t r = first[c];
    const std::int64_t s = first[c + 1];
    parts.push_back({Changes(two.a.indptr[s] - two.a.indptr[r]),
                     Changes(two.b.indptr[s] - two.b.indptr[r])});
  }
#pragma omp parallel for num_threads(std::max(1, threads)) schedule(dynamic, 1) if (chunks > 1)
  for (std::int64_t c = 0; c < chunks; ++c) {
    merge_rows(two.a, two.b, first[c], first[c + 1], parts[c].removed, parts[c].added);
  }
  return parts;
}

// Holds the changes between two snapshots until the caller has made arrays for them.
class DifferenceMerge {
 public:
  DifferenceMerge(const DifferenceMerge&) = delete;
  DifferenceMerge(const Offsets& a_indptr, const Columns& a_indices, const Offsets& b_indptr,
                  const Columns& b_indices, int threads)
      : threads_(std::max(1, threads)) {
    const Two two(a_indptr, a_indices, b_indptr, b_indices);
    nb::gil_scoped_release release;
    parts_ = compare<ChangeList>(two, threads_);
    for (const auto& part : parts_) {
      removed_ += part.removed.count;
      added_ += part.added.count;
    }
  }

  std::pair<std::int64_t, std::int64_t> counts() const { return {removed_, added_}; }

  void fill(PairsOn<Cpu> removed, PairsOn<Cpu> added) const {
    const Pairs gone = pairs_of(removed, "removed");
    const Pairs come = pairs_of(added, "added");
    require_length("removed", gone.count, removed_);
    require_length("added", come.count, added_);
    nb::gil_scoped_release release;
    std::vector<std::int64_t> gone_at{0};
    std::vector<std::int64_t> come_at{0};
    for (const auto& part : parts_) {
      gone_at.push_back(gone_at.back() + part.removed.count);
      come_at.push_back(come_at.back() + part.added.count);
    }
    const auto chunks = static_cast<std::int64_t>(parts_.size());
#pragma omp parallel for num_threads(threads_) schedule(dynamic, 1) if (chunks > 1)
    for (std::int64_t c = 0; c < chunks; ++c) {
      copy(parts_[c].removed, gone, gone_at[c]);
      copy(parts_[c].added, come, come_at[c]);
    }
  }

 private:
  static void copy(const ChangeList& from, const Pairs& to, std::int64_t at) {
    widen(from.rows.get(), from.count, to.rows, at);
    widen(from.columns.get(), from.count, to.columns, at);
  }

  static void widen(const std::int32_t* from, std::int64_t count, const Ids& to, std::int64_t at) {
    if (to.wide) {
      auto* out = static_cast<std::int64_t*>(const_cast<void*>(to.data)) + at;
      for (std::int64_t i = 0; i < count; ++i) out[i] = from[i];
    } else {
      std::copy_n(from, count, static_cast<std::int32_t*>(const_cast<void*>(to.data)) + at);
    }
  }

  int threads_;
  std::vector<Part<ChangeList>> parts_;
  std::int64_t removed_ = 0;
  std::int64_t added_ = 0;
};

std::pair<std::int64_t, std::int64_t> count_changes(const Offsets& a_indptr,
                                                    const Columns& a_indices,
                                                    const Offsets& b_indptr,
                                                    const Columns& b_indices, int threads) {
  const Two two(a_indptr, a_indices, b_indptr, b_indices);
  nb::gil_scoped_release release;
  std::pair<std::int64_t, std::int64_t> total{0, 0};
  for (const auto& part : compare<ChangeCount>(two, std::max(1, threads))) {
    total.first += part.removed.count;
    total.second += part.added.count;
  }
  return total;
}

template <class Index>
void write_pairs(const std::int64_t* at, const std::int32_t* columns, std::int64_t rows, Index* out,
                 std::int64_t nnz, int threads) {
#pragma omp parallel for num_threads(std::max(1, threads)) schedule(static) if (nnz > kSerialWork)
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t e = at[row]; e < at[row + 1]; ++e) {
      out[e] = static_cast<Index>(row);
      out[nnz + e] = columns[e];
    }
  }
}

// The pairs of a whole matrix, as a plain transfer sends them.
void matrix_pairs(Offsets indptr, Columns indices, PairsOn<Cpu> pairs, int threads) {
  const Pairs out = pairs_of(pairs, "pairs");
  const auto nnz = static_cast<std::int64_t>(indices.size());
  const auto rows = static_cast<std::int64_t>(indptr.size()) - 1;
  check_rows(indptr, indices.size(), "indptr");
  require_length("pairs", out.count, nnz);
  nb::gil_scoped_release release;
  if (out.rows.wide) {
    write_pairs(indptr.data(), indices.data(), rows, static_cast<std::int64_t*>(pairs.data()), nnz,
                threads);
  } else {
    write_pairs(indptr.data(), indices.data(), rows, static_cast<std::int32_t*>(pairs.data()), nnz,
                threads);
  }
}

// Rows of the new matrix are shared among threads; each span finds its changes by two searches.
void rebuild(std::optional<Offsets> indptr, Columns indices, std::int64_t num_cols,
             PairsOn<Cpu> removed, PairsOn<Cpu> added, VectorOn<std::int64_t, Cpu> out_indptr,
             VectorOn<std::int32_t, Cpu> out_indices, VectorOn<std::int64_t, Cpu> found,
             int threads) {
  const Pairs gone = pairs_of(removed, "removed");
  const Rebuild r = rebuild_of<Cpu>(indptr, indices, gone, added, out_indptr, out_indices);
  require(gone.count == 0 || r.added.count == 0 || gone.rows.wide == r.added.rows.wide,
          "removed and added differ in their dtype");
  require_length("found", static_cast<std::int64_t>(found.size()), 3);
  if (indptr) check_rows(*indptr, indices.size(), "indptr");
  nb::gil_scoped_release release;
  const std::int64_t work = r.rows / 8 + r.out_nnz;
  const std::int64_t spans = work < kSerialWork ? 1 : count_chunks(work, threads);
  const auto cost = [&](std::int64_t row) {
    return r.indptr == nullptr ? row : row / 8 + r.indptr[row];
  };
  std::vector<std::int64_t> first(spans + 1);
  for (std::int64_t s = 0; s <= spans; ++s) {
    first[s] = chunk_start(r.rows, cost(r.rows), s, spans, cost);
  }
  const bool wide = gone.count > 0 ? gone.rows.wide : r.added.rows.wide;
  Caught caught;
#pragma omp parallel for num_threads(std::max(1, threads)) schedule(dynamic, 1) if (spans > 1)
  for (std::int64_t s = 0; s < spans; ++s) {
    caught.run([&] {
      if (wide) {
        rebuild_span<std::int64_t>(r, gone, num_cols, first[s], first[s + 1], found.data());
      } else {
        rebuild_span<std::int32_t>(r, gone, num_cols, first[s], first[s + 1], found.data());
      }
    });
  }
  caught.rethrow();
  r.out_indptr[r.rows] = r.out_nnz;
}

}  // namespace

void bind_difference(nb::module_& m) {
  nb::class_<DifferenceMerge>(m, "DifferenceMerge")
      .def(nb::init<const Offsets&, const Columns&, const Offsets&, const Columns&, int>(),
           "indptr"_a.noconvert(), "indices"_a.noconvert(), "second_indptr"_a.noconvert(),
           "second_indices"_a.noconvert(), "threads"_a)
      .def("counts", &DifferenceMerge::counts)
      .def("fill", &DifferenceMerge::fill, "removed"_a.noconvert(), "added"_a.noconvert());
  m.def("count_changes", &count_changes, "indptr"_a.noconvert(), "indices"_a.noconvert(),
        "second_indptr"_a.noconvert(), "second_indices"_a.noconvert(), "threads"_a);
  m.def("matrix_pairs", &matrix_pairs, "indptr"_a.noconvert(), "indices"_a.noconvert(),
        "pairs"_a.noconvert(), "threads"_a);
  m.def("rebuild", &rebuild, "indptr"_a.noconvert().none(), "indices"_a.noconvert(), "num_cols"_a,
        "removed"_a.noconvert(), "added"_a.noconvert(), "out_indptr"_a.noconvert(),
        "out_indices"_a.noconvert(), "found"_a.noconvert(), "threads"_a);
}

}  // namespace dgbench
