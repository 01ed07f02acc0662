// A cache of feature rows that works on whole batches of ids (GNNFlow 4.3): look all of them up, gather
// hits and misses in one pass, then score, evict and admit at once.
//
// Rules, the same for every number of threads and for a device. Batches count from 1. A slot that a
// batch hits gets its number (`last`) and one more use (`score`), however often the id occurs in it. Of
// the misses at most `limit` are admitted: those that occur most often, ties by first occurrence; they
// take free slots in order, then those of the victims in order. Victims are the slots with the smallest
// `last` (LRU) or `score` (LFU), ties by slot, never one hit in this batch; or the next ones round the
// ring (FIFO). Slots are handed out to misses in order of their first occurrence.
//
// ids, rows, last and score belong to the caller; this class keeps them, the index and the order in step.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <tuple>
#include <variant>
#include <vector>

#include "common/partition_arguments.hpp"
#include "common/smallest.hpp"
#include "row_cache/cpu_id_index.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace dgbench {

void bind_list_cache(nb::module_& m);

namespace {

using Cpu = nb::device::cpu;
template <class T>
using Vector = VectorOn<T, Cpu>;
template <class T>
using Matrix = MatrixOn<T, Cpu>;

enum class Policy { Lru = 0, Lfu = 1, Fifo = 2, Static = 3 };

constexpr std::int64_t kAhead = 16;       // ids between asking for an index line and reading it
constexpr std::int64_t kRowsAhead = 4;    // rows between asking for a row and copying it
constexpr std::int64_t kChunk = 128;      // rows that a thread takes at a time
constexpr std::int64_t kSerialBytes = 1 << 16;

using Index = std::variant<DenseIndex, HashIndex>;

Index make_index(bool hashed, std::int64_t num_ids) {
  if (hashed) return HashIndex(num_ids);
  return DenseIndex(num_ids);
}

class RowCache {
 public:
  RowCache(Vector<std::int64_t> ids, Matrix<float> rows, Vector<std::int32_t> last,
           Vector<std::int32_t> score, std::int64_t num_ids, int policy, std::int64_t limit,
           bool hashed)
      : ids_(ids),
        rows_(rows),
        last_(last),
        score_(score),
        capacity_(static_cast<std::int64_t>(ids.size())),
        dim_(static_cast<std::int64_t>(rows.shape(1))),
        num_ids_(num_ids),
        policy_(static_cast<Policy>(policy)),
        limit_(limit),
        hashed_(hashed),
        index_(make_index(hashed, num_ids)),
        seen_(ids.size(), 0) {
    require(policy >= 0 && policy <= 3, "policy is " + std::to_string(policy) + ", allowed are 0 to 3");
    require(capacity_ < (std::int64_t{1} << 31), "capacity must be below 2^31");
    require(num_ids >= 0, "num_ids is " + std::to_string(num_ids) + ", allowed are values from 0");
    require(limit >= 0 && limit <= capacity_, "limit is " + std::to_string(limit) +
                                                  ", allowed are 0 to " + std::to_string(capacity_));
    require_length("rows", static_cast<std::int64_t>(rows.shape(0)), capacity_);
    require_length("last", static_cast<std::int64_t>(last.size()), capacity_);
    require_length("score", static_cast<std::int64_t>(score.size()), capacity_);
  }

  // Finds every id: place[i] is its slot, or -1 - k where it is the k-th different id that is not
  // kept. Changes nothing that a later lookup would see. Returns the number of misses.
  std::int64_t lookup(Vector<const std::int64_t> ids, Vector<std::int32_t> place) {
    const auto n = static_cast<std::int64_t>(ids.size());
    require_length("place", static_cast<std::int64_t>(place.size()), n);
    require(n < (std::int64_t{1} << 31), "ids must be fewer than 2^31");
    nb::gil_scoped_release release;
    check_range(ids.data(), n);
    // All memory first: without it, the lookup before this one still stands.
    misses_.reserve(ids.size());
    counts_.reserve(ids.size());
    first_.reserve(ids.size());
    hit_slots_.reserve(static_cast<std::size_t>(std::min(n, capacity_)));
    std::visit([&](auto& index) { index.make_room(n); }, index_);
    pending_ = false;
    misses_.clear();
    counts_.clear();
    first_.clear();
    hit_slots_.clear();
    std::visit([&](auto& index) { look_up(index, ids.data(), n, place.data()); }, index_);
    asked_ = n;
    pending_ = true;
    return static_cast<std::int64_t>(misses_.size());
  }

  // The ids of the last lookup that are not kept, each once, in order of first occurrence.
  void misses(Vector<std::int64_t> out) const {
    require_length("out", static_cast<std::int64_t>(out.size()),
                   static_cast<std::int64_t>(misses_.size()));
    std::copy(misses_.begin(), misses_.end(), out.data());
  }

  // out[i] = the row of the i-th id: from its slot, or from `source`, whose row for the k-th miss is
  // misses[k] (`by_id`: a table of all rows) or k (rows of the misses alone).
  void gather(Vector<const std::int32_t> place, Matrix<const float> source, bool by_id,
              Matrix<float> out, int threads) const {
    const auto n = static_cast<std::int64_t>(place.size());
    require_pending(n);
    require_length("out rows", static_cast<std::int64_t>(out.shape(0)), n);
    require_length("out columns", static_cast<std::int64_t>(out.shape(1)), dim_);
    require_length("source columns", static_cast<std::int64_t>(source.shape(1)), dim_);
    const auto missed = static_cast<std::int64_t>(misses_.size());
    const auto given = static_cast<std::int64_t>(source.shape(0));
    require(given >= (by_id ? num_ids_ : missed) || missed == 0,
            "source has " + std::to_string(given) + " rows, expected " +
                std::to_string(by_id ? num_ids_ : missed));
    nb::gil_scoped_release release;
    const std::int32_t* from = place.data();
    std::int32_t low = 0;
    std::int32_t high = -1;
    for (std::int64_t i = 0; i < n; ++i) {
      low = std::min(low, from[i]);
      high = std::max(high, from[i]);
    }
    require(-static_cast<std::int64_t>(low) <= missed && high < capacity_,
            "place was not filled by the last lookup");
    const float* kept = rows_.data();
    const float* table = source.data();
    const std::int64_t* missing = misses_.data();
    const auto row = [=, dim = dim_](std::int64_t i) {
      if (from[i] >= 0) return kept + from[i] * dim;
      const std::int64_t k = -1 - static_cast<std::int64_t>(from[i]);
      return table + (by_id ? missing[k] : k) * dim;
    };
    copy_rows(n, dim_, row, out.data(), threads);
  }

  // Scores the hits of the last lookup and admits misses from `out`, its gathered rows. Returns how
  // many were admitted and how many of these took the place of another.
  std::pair<std::int64_t, std::int64_t> update(Matrix<const float> out, int threads) {
    require_pending(static_cast<std::int64_t>(out.shape(0)));
    require_length("out columns", static_cast<std::int64_t>(out.shape(1)), dim_);
    nb::gil_scoped_release release;
    const auto missed = static_cast<std::int64_t>(misses_.size());
    const std::int64_t wanted = policy_ == Policy::Static ? 0 : std::min(missed, limit_);
    // All memory first: without it, nothing is scored and the lookup still stands.
    slots_.clear();
    slots_.reserve(static_cast<std::size_t>(wanted));
    chosen_.reserve(static_cast<std::size_t>(wanted));
    pending_ = false;
    ++batch_;
    for (const std::int32_t slot : hit_slots_) {
      last_(slot) = batch_;
      ++score_(slot);
    }
    if (wanted == 0) return {0, 0};
    const std::int64_t free = std::min(wanted, capacity_ - size_);
    slots_.resize(static_cast<std::size_t>(free));
    std::iota(slots_.begin(), slots_.end(), static_cast<std::int32_t>(size_));
    pick_victims(wanted - free);
    const auto admitted = static_cast<std::int64_t>(slots_.size());
    pick_admitted(admitted);
    std::visit([&](auto& index) { take(index, free); }, index_);
    size_ += free;
    copy_admitted(out.data(), threads);
    return {admitted, admitted - free};
  }

  // Keeps these ids and rows in slots 0, 1, ... instead of what was kept; `ring` is the slot that FIFO
  // takes next. On an id that is out of range or there twice, everything stays as it was.
  void assign(Vector<const std::int64_t> ids, Matrix<const float> rows,
              Vector<const std::int32_t> last, Vector<const std::int32_t> score, std::int64_t ring,
              std::int32_t batch, int threads) {
    const auto size = static_cast<std::int64_t>(ids.size());
    require(size <= capacity_, "ids has " + std::to_string(size) + " elements, the capacity is " +
                                   std::to_string(capacity_));
    require_length("rows", static_cast<std::int64_t>(rows.shape(0)), size);
    require_length("rows columns", static_cast<std::int64_t>(rows.shape(1)), dim_);
    require_length("last", static_cast<std::int64_t>(last.size()), size);
    require_length("score", static_cast<std::int64_t>(score.size()), size);
    require(ring >= 0 && ring < std::max<std::int64_t>(capacity_, 1),
            "ring is " + std::to_string(ring) + ", allowed are slots");
    require(batch >= 0, "batch is " + std::to_string(batch) + ", allowed are values from 0");
    nb::gil_scoped_release release;
    check_range(ids.data(), size);
    std::visit([&](auto& index) { reindex(index, ids.data(), size); }, index_);
    std::copy_n(ids.data(), size, ids_.data());
    std::copy_n(last.data(), size, last_.data());
    std::copy_n(score.data(), size, score_.data());
    copy_rows(size, dim_, [&](std::int64_t i) { return rows.data() + i * dim_; }, rows_.data(), threads);
    size_ = size;
    ring_ = ring;
    batch_ = batch;
    pending_ = false;
  }

  // Ids up to `num_ids` may be asked for from now on.
  void grow(std::int64_t num_ids) {
    require(num_ids >= num_ids_, "num_ids is " + std::to_string(num_ids) + ", it was " +
                                     std::to_string(num_ids_) + " already");
    std::visit([&](auto& index) { index.grow(num_ids); }, index_);
    num_ids_ = num_ids;
  }

  std::tuple<std::int64_t, std::int64_t, std::int32_t> order() const { return {size_, ring_, batch_}; }

  // (different ids that hit, requests that hit) of the last lookup
  std::pair<std::int64_t, std::int64_t> hits() const {
    return {static_cast<std::int64_t>(hit_slots_.size()), request_hits_};
  }
  std::int64_t index_bytes() const {
    return std::visit([](const auto& index) { return index.nbytes(); }, index_);
  }

 private:
  void require_pending(std::int64_t n) const {
    require(pending_, "there was no lookup since the last update");
    require_length("place", n, asked_);
  }

  void check_range(const std::int64_t* ids, std::int64_t n) const {
    std::int64_t low = 0;
    std::int64_t high = -1;
    for (std::int64_t i = 0; i < n; ++i) {
      low = std::min(low, ids[i]);
      high = std::max(high, ids[i]);
    }
    require(low >= 0 && high < num_ids_, "ids must satisfy 0 <= x < " + std::to_string(num_ids_) +
                                             ", got values in [" + std::to_string(low) + ", " +
                                             std::to_string(high) + "]");
  }

  template <class Kind>
  void look_up(Kind& index, const std::int64_t* ids, std::int64_t n, std::int32_t* place) {
    ++probe_;
    request_hits_ = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      if (i + kAhead < n) index.prefetch(ids[i + kAhead]);
      const auto mark = static_cast<std::int32_t>(-2 - static_cast<std::int64_t>(misses_.size()));
      const std::int32_t found = index.find_or_set(ids[i], mark);
      if (found >= 0) {
        place[i] = found;
        ++request_hits_;
        if (seen_[static_cast<std::size_t>(found)] != probe_) {
          seen_[static_cast<std::size_t>(found)] = probe_;
          hit_slots_.push_back(found);
        }
      } else if (found == kAbsent) {
        place[i] = mark + 1;
        misses_.push_back(ids[i]);
        counts_.push_back(1);
        first_.push_back(static_cast<std::int32_t>(i));
      } else {
        place[i] = found + 1;
        ++counts_[static_cast<std::size_t>(-2 - found)];
      }
    }
    for (auto id = misses_.rbegin(); id != misses_.rend(); ++id) index.unmark(*id);
  }

  template <class Kind>
  void reindex(Kind& index, const std::int64_t* ids, std::int64_t size) {
    index.make_room(std::max<std::int64_t>(0, size - size_));  // before anything is gone
    for (std::int64_t slot = 0; slot < size_; ++slot) index.erase(ids_(slot));
    for (std::int64_t slot = 0; slot < size; ++slot) {
      const std::int32_t found = index.find_or_set(ids[slot], static_cast<std::int32_t>(slot));
      if (found == kAbsent) continue;
      for (std::int64_t i = 0; i < slot; ++i) index.erase(ids[i]);
      for (std::int64_t i = 0; i < size_; ++i) index.find_or_set(ids_(i), static_cast<std::int32_t>(i));
      throw std::invalid_argument("id " + std::to_string(ids[slot]) + " stands in places " +
                                  std::to_string(found) + " and " + std::to_string(slot));
    }
  }

  // Appends the slots to be emptied, at most `wanted`.
  void pick_victims(std::int64_t wanted) {
    if (wanted <= 0) return;
    if (policy_ == Policy::Fifo) {
      for (std::int64_t i = 0; i < wanted; ++i) {
        slots_.push_back(static_cast<std::int32_t>(ring_));
        ring_ = ring_ + 1 == capacity_ ? 0 : ring_ + 1;
      }
      return;
    }
    const std::int64_t spare = size_ - static_cast<std::int64_t>(hit_slots_.size());
    const std::int32_t* last = last_.data();
    const std::int32_t* rank = policy_ == Policy::Lru ? last : score_.data();
    const std::int32_t now = batch_;
    smallest(size_, std::min(wanted, spare),
             [=](std::int64_t slot) {
               return last[slot] == now ? kNoKey : static_cast<std::uint32_t>(rank[slot]);
             },
             slots_);
  }

  // Ordinals of the misses that are admitted, in order of first occurrence.
  void pick_admitted(std::int64_t admitted) {
    const auto missed = static_cast<std::int64_t>(misses_.size());
    chosen_.clear();
    if (admitted == missed) {
      chosen_.resize(static_cast<std::size_t>(missed));
      std::iota(chosen_.begin(), chosen_.end(), 0);
      return;
    }
    const std::int32_t* counts = counts_.data();
    smallest(missed, admitted,
             [=](std::int64_t k) { return kNoKey - static_cast<std::uint32_t>(counts[k]); }, chosen_);
  }

  template <class Kind>
  void take(Kind& index, std::int64_t free) {
    const auto admitted = static_cast<std::int64_t>(slots_.size());
    // The lookup made room for all of its misses in the index.
    for (std::int64_t i = free; i < admitted; ++i) index.erase(ids_(slots_[static_cast<std::size_t>(i)]));
    for (std::int64_t i = 0; i < admitted; ++i) {
      const std::int32_t slot = slots_[static_cast<std::size_t>(i)];
      const std::int64_t id = misses_[static_cast<std::size_t>(chosen_[static_cast<std::size_t>(i)])];
      ids_(slot) = id;
      last_(slot) = batch_;
      score_(slot) = 1;
      index.find_or_set(id, slot);
    }
  }

  void copy_admitted(const float* out, int threads) {
    const auto admitted = static_cast<std::int64_t>(slots_.size());
    float* rows = rows_.data();
#pragma omp parallel for num_threads(std::max(1, threads)) schedule(static) if (admitted * dim_ * 4 > kSerialBytes)
    for (std::int64_t i = 0; i < admitted; ++i) {
      const auto from = first_[static_cast<std::size_t>(chosen_[static_cast<std::size_t>(i)])];
      std::memcpy(rows + slots_[static_cast<std::size_t>(i)] * dim_, out + from * dim_,
                  static_cast<std::size_t>(dim_) * sizeof(float));
    }
  }

  template <class Row>
  static void copy_rows(std::int64_t n, std::int64_t dim, const Row& row, float* out, int threads) {
    const std::int64_t lines = (dim * 4 + 63) / 64;
#pragma omp parallel for num_threads(std::max(1, threads)) schedule(dynamic, kChunk) if (n * dim * 4 > kSerialBytes)
    for (std::int64_t i = 0; i < n; ++i) {
      if (i + kRowsAhead < n) {
        const float* soon = row(i + kRowsAhead);
        for (std::int64_t line = 0; line < lines; ++line) __builtin_prefetch(soon + 16 * line);
      }
      std::memcpy(out + i * dim, row(i), static_cast<std::size_t>(dim) * sizeof(float));
    }
  }

  Vector<std::int64_t> ids_;
  Matrix<float> rows_;
  Vector<std::int32_t> last_;
  Vector<std::int32_t> score_;
  std::int64_t capacity_;
  std::int64_t dim_;
  std::int64_t num_ids_;
  Policy policy_;
  std::int64_t limit_;
  bool hashed_;
  Index index_;
  std::int64_t size_ = 0;
  std::int64_t ring_ = 0;
  std::int32_t batch_ = 0;
  // of the last lookup
  bool pending_ = false;
  std::int64_t asked_ = 0;
  std::int64_t request_hits_ = 0;
  std::int32_t probe_ = 0;
  std::vector<std::int32_t> seen_;  // the lookup that met a slot last
  std::vector<std::int32_t> hit_slots_;
  std::vector<std::int64_t> misses_;
  std::vector<std::int32_t> counts_;  // occurrences of each miss
  std::vector<std::int32_t> first_;   // where each occurs first
  std::vector<std::int32_t> slots_;
  std::vector<std::int32_t> chosen_;
};

}  // namespace

void bind_row_cache(nb::module_& m) {
  nb::class_<RowCache>(m, "RowCache")
      .def(nb::init<Vector<std::int64_t>, Matrix<float>, Vector<std::int32_t>, Vector<std::int32_t>,
                    std::int64_t, int, std::int64_t, bool>(),
           "ids"_a.noconvert(), "rows"_a.noconvert(), "last"_a.noconvert(), "score"_a.noconvert(),
           "num_ids"_a, "policy"_a, "limit"_a, "hashed"_a)
      .def("lookup", &RowCache::lookup, "ids"_a.noconvert(), "place"_a.noconvert())
      .def("misses", &RowCache::misses, "out"_a.noconvert())
      .def("gather", &RowCache::gather, "place"_a.noconvert(), "source"_a.noconvert(), "by_id"_a,
           "out"_a.noconvert(), "threads"_a)
      .def("update", &RowCache::update, "out"_a.noconvert(), "threads"_a)
      .def("assign", &RowCache::assign, "ids"_a.noconvert(), "rows"_a.noconvert(),
           "last"_a.noconvert(), "score"_a.noconvert(), "ring"_a, "batch"_a, "threads"_a)
      .def("grow", &RowCache::grow, "num_ids"_a)
      .def("order", &RowCache::order)
      .def("hits", &RowCache::hits)
      .def("index_bytes", &RowCache::index_bytes);
  bind_list_cache(m);
}

}  // namespace dgbench
