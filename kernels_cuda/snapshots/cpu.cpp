// From timed edges to one adjacency matrix per snapshot.
//
// Events are grouped by destination row (counting), sorted inside the row by source and bin, and
// then every pair writes itself into the snapshots it lives in. Columns come out ascending, equal
// edges lie together, and an edge that lives for several bins is never copied before the output.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/caught.hpp"
#include "common/check.hpp"
#include "common/counting.hpp"
#include "common/lists.hpp"
#include "common/work_division.hpp"

namespace nb = nanobind;

namespace dgbench {
namespace {

struct Event {
  std::uint64_t key;  // source << 32 | bin
  float weight;
};

// Stable, by key. Long rows go byte by byte over the bytes that differ, so a hub costs linear time.
void sort_row(Event* begin, Event* end, std::vector<Event>& spare) {
  const auto by_key = [](const Event& a, const Event& b) { return a.key < b.key; };
  const std::ptrdiff_t count = end - begin;
  if (std::is_sorted(begin, end, by_key)) return;
  if (count < 512) {
    std::stable_sort(begin, end, by_key);
    return;
  }
  std::uint64_t differs = 0;
  for (const Event* e = begin; e < end; ++e) differs |= e->key ^ begin->key;
  spare.resize(static_cast<std::size_t>(count));
  for (int shift = 0; shift < 64; shift += 8) {
    if ((differs >> shift & 255u) == 0) continue;
    std::int64_t at[257] = {};
    for (const Event* e = begin; e < end; ++e) ++at[(e->key >> shift & 255u) + 1];
    for (int b = 0; b < 256; ++b) at[b + 1] += at[b];
    for (const Event* e = begin; e < end; ++e) spare[at[e->key >> shift & 255u]++] = *e;
    std::copy(spare.begin(), spare.begin() + count, begin);
  }
}

class EdgeSnapshots {
 public:
  EdgeSnapshots(Array<const std::int64_t> src, Array<const std::int64_t> dst,
                Array<const std::int64_t> bins, Maybe<const float> weight,
                std::int64_t num_snapshots, std::int64_t num_nodes, std::int64_t edge_life,
                bool symmetric, bool drop_self_loops, bool weighted, int threads)
      : snapshots_(num_snapshots),
        nodes_(num_nodes),
        life_(edge_life),
        weighted_(weighted),
        threads_(std::max(1, threads)) {
    const std::size_t count = src.size();
    check_size(dst, count, "dst");
    check_size(bins, count, "bins");
    check_optional(weight, count, "weight");
    if (snapshots_ < 0 || nodes_ < 0 || nodes_ > INT32_MAX || snapshots_ > INT32_MAX) {
      reject("num_snapshots and num_nodes must lie in [0, 2^31)");
    }
    if (life_ < 1) reject("edge_life must be positive");
    if (!ids_in_range(src.data(), count, nodes_)) reject("src holds ids outside [0, num_nodes)");
    if (!ids_in_range(dst.data(), count, nodes_)) reject("dst holds ids outside [0, num_nodes)");
    if (!ids_in_range(bins.data(), count, snapshots_)) {
      reject("bins holds values outside [0, num_snapshots)");
    }
    nb::gil_scoped_release release;
    const std::int64_t* from = src.data();
    const std::int64_t* to = dst.data();
    const std::int64_t* bin = bins.data();
    const float* w = pointer(weight);
    const auto events = static_cast<std::int64_t>(count);
    starts_.resize(static_cast<std::size_t>(nodes_) + 1);
    // An upper bound: dropped loops leave a tail that is never read.
    events_.resize(static_cast<std::size_t>(symmetric ? 2 * events : events));
    const auto key = [&](std::int64_t i) -> std::int64_t {
      const bool back = i >= events;
      const std::int64_t e = back ? i - events : i;
      // The mirror image of a loop is the loop itself; it counts once.
      if (from[e] == to[e] && (back || drop_self_loops)) return -1;
      return back ? from[e] : to[e];
    };
    const auto place = [&](std::int64_t i, std::int64_t at) {
      const bool back = i >= events;
      const std::int64_t e = back ? i - events : i;
      const auto column = static_cast<std::uint64_t>(back ? to[e] : from[e]);
      events_[at] = {column << 32 | static_cast<std::uint64_t>(bin[e]), w ? w[e] : 1.0f};
    };
    group_by(symmetric ? 2 * events : events, nodes_, threads_, starts_.data(), key, place);
    const std::int64_t work = starts_[nodes_] + nodes_;
    Caught caught;
#pragma omp parallel num_threads(threads_) if (work > kSerialWork)
    {
      std::vector<Event> spare;
#pragma omp for schedule(dynamic, 256)
      for (std::int64_t r = 0; r < nodes_; ++r) {
        caught.run([&] {
          sort_row(events_.data() + starts_[r], events_.data() + starts_[r + 1], spare);
        });
      }
    }
    caught.rethrow();
  }

  // Fills the offsets of all snapshots, each int64[num_nodes + 1].
  void count(std::vector<Array<std::int64_t>> indptr) {
    check_count(indptr.size(), "indptr");
    for (auto& array : indptr) check_size(array, static_cast<std::size_t>(nodes_) + 1, "indptr");
    nb::gil_scoped_release release;
    std::vector<std::int64_t*> at;
    for (auto& array : indptr) at.push_back(array.data());
    // All memory first: `fill` relies on both of these or on neither.
    std::vector<const std::int64_t*> filled(at.begin(), at.end());
    std::vector<std::int64_t> total(at.size());
#pragma omp parallel for num_threads(threads_) schedule(static)
    for (std::int64_t t = 0; t < snapshots_; ++t) std::fill_n(at[t], nodes_ + 1, std::int64_t{0});
    each_row([&](std::int64_t r, std::int64_t t, std::uint64_t, double) { ++at[t][r + 1]; });
#pragma omp parallel for num_threads(threads_) schedule(static)
    for (std::int64_t t = 0; t < snapshots_; ++t) {
      for (std::int64_t r = 0; r < nodes_; ++r) at[t][r + 1] += at[t][r];
    }
    for (std::size_t t = 0; t < at.size(); ++t) total[t] = at[t][nodes_];
    filled_.swap(filled);
    total_.swap(total);
  }

  // Fills columns and, if weighted, values of all snapshots, after `count` with the same offsets.
  void fill(std::vector<Array<const std::int64_t>> indptr,
            std::vector<Array<std::int32_t>> indices, std::vector<Array<float>> values) {
    check_count(indptr.size(), "indptr");
    check_count(indices.size(), "indices");
    if (weighted_) check_count(values.size(), "values");
    if (total_.size() != static_cast<std::size_t>(snapshots_)) reject("count comes before fill");
    for (std::int64_t t = 0; t < snapshots_; ++t) {
      check_size(indptr[t], static_cast<std::size_t>(nodes_) + 1, "indptr");
      if (indptr[t].data() != filled_[t]) reject("indptr is not the array that count filled");
      check_size(indices[t], static_cast<std::size_t>(total_[t]), "indices");
      if (weighted_) check_size(values[t], static_cast<std::size_t>(total_[t]), "values");
    }
    nb::gil_scoped_release release;
    Caught caught;
#pragma omp parallel num_threads(threads_)
    {
      // Where this thread's current row stands in each snapshot; set again when the row changes.
      std::vector<std::int64_t> next;
      std::vector<std::int64_t> row_of;
      caught.run([&] {
        next.resize(static_cast<std::size_t>(snapshots_));
        row_of.assign(static_cast<std::size_t>(snapshots_), -1);
      });
#pragma omp for schedule(dynamic, 256)
      for (std::int64_t r = 0; r < nodes_; ++r) {
        if (caught.any()) continue;
        row(r, [&](std::int64_t at, std::int64_t t, std::uint64_t column, double value) {
          if (row_of[t] != at) {
            row_of[t] = at;
            next[t] = indptr[t].data()[at];
          }
          indices[t].data()[next[t]] = static_cast<std::int32_t>(column);
          if (weighted_) values[t].data()[next[t]] = static_cast<float>(value);
          ++next[t];
        });
      }
    }
    caught.rethrow();
  }

 private:
  void check_count(std::size_t found, const char* name) const {
    if (found == static_cast<std::size_t>(snapshots_)) return;
    reject(std::string(name) + " holds " + std::to_string(found) + " arrays, expected one for each of " +
           std::to_string(snapshots_) + " snapshots");
  }

  // emit(row, snapshot, column, value) for every edge of every snapshot of the row, columns
  // ascending. The value is the sum of the weights of the bins (t - life, t].
  template <class Emit>
  void row(std::int64_t r, const Emit& emit) const {
    const Event* e = events_.data() + starts_[r];
    const Event* const end = events_.data() + starts_[r + 1];
    while (e < end) {
      const std::uint64_t column = e->key >> 32;
      const Event* stop = e;
      while (stop < end && stop->key >> 32 == column) ++stop;
      const Event* oldest = e;  // first event still alive
      const Event* newest = e;  // first event not yet born
      std::int64_t t = bin_of(*e);
      while (t < snapshots_) {
        while (newest < stop && bin_of(*newest) <= t) ++newest;
        while (oldest < newest && bin_of(*oldest) + life_ <= t) ++oldest;
        if (oldest == newest) {
          if (newest == stop) break;
          t = bin_of(*newest);
          continue;
        }
        double value = 0;
        if (weighted_) {
          for (const Event* one = oldest; one < newest; ++one) value += one->weight;
        }
        emit(r, t, column, value);
        ++t;
      }
      e = stop;
    }
  }

  template <class Emit>
  void each_row(const Emit& emit) const {
#pragma omp parallel for num_threads(threads_) schedule(dynamic, 256)
    for (std::int64_t r = 0; r < nodes_; ++r) row(r, emit);
  }

  static std::int64_t bin_of(const Event& e) {
    return static_cast<std::int64_t>(e.key & 0xffffffffu);
  }

  std::int64_t snapshots_;
  std::int64_t nodes_;
  std::int64_t life_;
  bool weighted_;
  int threads_;
  std::vector<std::int64_t> starts_;
  std::vector<Event> events_;
  std::vector<const std::int64_t*> filled_;
  std::vector<std::int64_t> total_;
};

}  // namespace

void bind_snapshots(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<EdgeSnapshots>(m, "EdgeSnapshots")
      .def(nb::init<Array<const std::int64_t>, Array<const std::int64_t>,
                    Array<const std::int64_t>, Maybe<const float>, std::int64_t, std::int64_t,
                    std::int64_t, bool, bool, bool, int>(),
           "src"_a.noconvert(), "dst"_a.noconvert(), "bins"_a.noconvert(),
           "weight"_a.noconvert().none(), "num_snapshots"_a, "num_nodes"_a, "edge_life"_a,
           "symmetric"_a, "drop_self_loops"_a, "weighted"_a, "threads"_a)
      .def("count", &EdgeSnapshots::count, "indptr"_a.noconvert())
      .def("fill", &EdgeSnapshots::fill, "indptr"_a.noconvert(), "indices"_a.noconvert(),
           "values"_a.noconvert());
}

}  // namespace dgbench
