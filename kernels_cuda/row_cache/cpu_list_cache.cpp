// The cache that GNNFlow argues against (4.3): a doubly linked list in order of use behind a lock, one
// request at a time. A baseline, made as fast as that allows: links and index are arrays and nothing is
// allocated. Rows are copied under the lock, since another thread might evict them.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <vector>

#include "common/partition_arguments.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace dgbench {
namespace {

using Cpu = nb::device::cpu;

class ListCache {
 public:
  ListCache(std::int64_t num_ids, std::int64_t capacity, std::int64_t dim)
      : capacity_(capacity), dim_(dim) {
    require(num_ids >= 0 && capacity >= 1 && dim >= 0,
            "num_ids and dim must be at least 0, capacity at least 1");
    slot_of_.assign(static_cast<std::size_t>(num_ids), -1);
    id_of_.assign(static_cast<std::size_t>(capacity), -1);
    links_.resize(static_cast<std::size_t>(capacity) + 1);
    rows_.resize(static_cast<std::size_t>(capacity * dim));
    links_[head()] = {head(), head()};
  }

  // Rows of ids in any order of threads; misses come from `table` and replace the least recently
  // used. Returns the number of hits.
  std::int64_t fetch(VectorOn<const std::int64_t, Cpu> ids, MatrixOn<const float, Cpu> table,
                     MatrixOn<float, Cpu> out, int threads) {
    const auto n = static_cast<std::int64_t>(ids.size());
    require_length("out rows", static_cast<std::int64_t>(out.shape(0)), n);
    require_length("out columns", static_cast<std::int64_t>(out.shape(1)), dim_);
    require_length("table columns", static_cast<std::int64_t>(table.shape(1)), dim_);
    require_length("table rows", static_cast<std::int64_t>(table.shape(0)),
                   static_cast<std::int64_t>(slot_of_.size()));
    for (std::int64_t i = 0; i < n; ++i) {
      require(ids(i) >= 0 && ids(i) < static_cast<std::int64_t>(slot_of_.size()),
              "ids[" + std::to_string(i) + "] is out of range");
    }
    nb::gil_scoped_release release;
    std::int64_t hits = 0;
#pragma omp parallel for num_threads(std::max(1, threads)) schedule(static) reduction(+ : hits)
    for (std::int64_t i = 0; i < n; ++i) {
      const std::lock_guard<std::mutex> hold(lock_);
      hits += access(ids(i), table.data(), out.data() + i * dim_);
    }
    return hits;
  }

 private:
  struct Link {
    std::int32_t before;
    std::int32_t after;
  };

  std::int32_t head() const { return static_cast<std::int32_t>(capacity_); }

  void unlink(std::int32_t slot) {
    const Link link = links_[slot];
    links_[link.before].after = link.after;
    links_[link.after].before = link.before;
  }
  void put_first(std::int32_t slot) {
    const std::int32_t next = links_[head()].after;
    links_[slot] = {head(), next};
    links_[next].before = slot;
    links_[head()].after = slot;
  }

  std::int64_t access(std::int64_t id, const float* table, float* out) {
    const std::size_t bytes = static_cast<std::size_t>(dim_) * sizeof(float);
    std::int32_t slot = slot_of_[static_cast<std::size_t>(id)];
    const bool hit = slot >= 0;
    if (hit) {
      unlink(slot);
    } else if (used_ < capacity_) {
      slot = static_cast<std::int32_t>(used_++);
    } else {
      slot = links_[head()].before;
      unlink(slot);
      slot_of_[static_cast<std::size_t>(id_of_[slot])] = -1;
    }
    float* row = rows_.data() + slot * dim_;
    if (!hit) {
      std::memcpy(row, table + id * dim_, bytes);
      id_of_[slot] = id;
      slot_of_[static_cast<std::size_t>(id)] = slot;
    }
    put_first(slot);
    std::memcpy(out, row, bytes);
    return hit;
  }

  std::int64_t capacity_;
  std::int64_t dim_;
  std::int64_t used_ = 0;
  std::vector<std::int32_t> slot_of_;
  std::vector<std::int64_t> id_of_;
  std::vector<Link> links_;
  std::vector<float> rows_;
  std::mutex lock_;
};

}  // namespace

void bind_list_cache(nb::module_& m) {
  nb::class_<ListCache>(m, "ListCache")
      .def(nb::init<std::int64_t, std::int64_t, std::int64_t>(), "num_ids"_a, "capacity"_a, "dim"_a)
      .def("fetch", &ListCache::fetch, "ids"_a.noconvert(), "table"_a.noconvert(), "out"_a.noconvert(),
           "threads"_a);
}

}  // namespace dgbench
