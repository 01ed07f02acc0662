// What the samplers of T-GCN (section 2.3) share: the graph they read, sets of vertices, results that
// threads write in any order, and one way to call all methods of weighted/cpu_search.hpp.
#pragma once

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "common/caught.hpp"
#include "edge_sampling/cpu_table.hpp"
#include "weighted/cpu_search.hpp"

namespace dgbench::sampling {

// What random numbers are for: two samplers with the same seed share none.
enum class Use : uint64_t { roots = 1, pools = 2, subgraphs = 3 };

// Root, pool or subgraph number `item` of call `call` < 2^20.
inline DrawNumbers numbers_of(uint64_t seed, Use use, uint64_t call, int64_t item) {
  return {seed, static_cast<uint64_t>(use) << 60 | call << 40 | static_cast<uint64_t>(item)};
}

// In the order of DrawStats' fields.
inline std::vector<int64_t> listed(const DrawCounts& c) {
  return {c.draws, c.redraws, c.nodes_visited, c.elements_scanned, c.rebuilt};
}

// A set of vertices in order of arrival. Clearing it costs nothing, and of its N places only those
// that are asked for take memory.
class VertexSet {
 public:
  explicit VertexSet(int64_t vertices)
      : place_(static_cast<int32_t*>(
            std::calloc(static_cast<std::size_t>(std::max<int64_t>(vertices, 1)), 4))) {
    if (!place_) throw std::bad_alloc();
  }
  // Where v stands, or -1.
  int64_t find(int32_t v) const {
    const auto at = static_cast<std::size_t>(place_[v]);
    return at < items_.size() && items_[at] == v ? static_cast<int64_t>(at) : -1;
  }
  // Whether v is new.
  bool insert(int32_t v) {
    if (find(v) >= 0) return false;
    place_[v] = static_cast<int32_t>(items_.size());
    items_.push_back(v);
    return true;
  }
  void clear() { items_.clear(); }
  const std::vector<int32_t>& items() const { return items_; }

 private:
  struct Release {
    void operator()(int32_t* p) const { std::free(p); }
  };
  std::unique_ptr<int32_t[], Release> place_;
  std::vector<int32_t> items_;
};

// Rows of elements, each written by one thread behind what it wrote before.
template <class T>
class Ragged {
 public:
  Ragged(int64_t rows, int threads)
      : pieces_(static_cast<std::size_t>(rows)), arenas_(static_cast<std::size_t>(std::max(1, threads))) {}

  std::vector<T>& arena(int thread) { return arenas_[thread]; }
  // Row r is all of the thread's arena from `begin` on.
  void close(int64_t r, int thread, std::size_t begin) {
    pieces_[r] = {thread, static_cast<int64_t>(begin),
                  static_cast<int64_t>(arenas_[thread].size() - begin)};
  }
  int64_t rows() const { return static_cast<int64_t>(pieces_.size()); }
  const T* row(int64_t r) const { return arenas_[pieces_[r].thread].data() + pieces_[r].begin; }
  int64_t size(int64_t r) const { return pieces_[r].count; }
  int64_t total() const {
    int64_t sum = 0;
    for (const Piece& one : pieces_) sum += one.count;
    return sum;
  }
  // offsets[rows + 1], then write(element, place) for all elements in order of rows.
  template <class Write>
  void copy(int64_t* offsets, int threads, const Write& write) const {
    offsets[0] = 0;
    for (int64_t r = 0; r < rows(); ++r) offsets[r + 1] = offsets[r] + size(r);
#pragma omp parallel for num_threads(std::max(1, threads)) schedule(dynamic, 64) if (offsets[rows()] > 16384)
    for (int64_t r = 0; r < rows(); ++r) {
      const T* const from = row(r);
      for (int64_t i = 0; i < size(r); ++i) write(from[i], offsets[r] + i);
    }
  }

 private:
  struct Piece {
    int thread = 0;
    int64_t begin = 0;
    int64_t count = 0;
  };
  std::vector<Piece> pieces_;
  std::vector<std::vector<T>> arenas_;
};

// Draws whole sets without replacement: one call for a pool, so that what methods differ in is how
// one draw is made and nothing else.
template <class W>
class PoolMethod {
 public:
  virtual ~PoolMethod() = default;
  // Sets bits[i / 64] bit i % 64 for up to k of n indices (fewer where fewer have weight).
  virtual void draw(const W* weights, int64_t n, int64_t k, DrawNumbers& rng, uint64_t* bits) = 0;
  virtual DrawCounts counts() const = 0;
};

// Throws std::invalid_argument for a name that is not known.
template <class W>
std::unique_ptr<PoolMethod<W>> make_pool_method(const std::string& name, int arity);
extern template std::unique_ptr<PoolMethod<int64_t>> make_pool_method(const std::string&, int);
extern template std::unique_ptr<PoolMethod<double>> make_pool_method(const std::string&, int);

// In every thread: a worker from make(thread), each(worker, item) for all of [0, count) in no order,
// and done(worker), one thread at a time. What is thrown in a thread is thrown again at the end.
template <class Make, class Each, class Done>
void share_out(int64_t count, int threads, int64_t at_once, const Make& make, const Each& each,
               const Done& done) {
  Caught caught;
  std::atomic<int64_t> next{0};
#pragma omp parallel num_threads(std::max(1, threads))
  caught.run([&] {
    auto worker = make(omp_get_thread_num());
    for (;;) {
      const int64_t first = next.fetch_add(at_once);
      if (first >= count || caught.any()) break;
      for (int64_t i = first; i < std::min(count, first + at_once); ++i) each(*worker, i);
    }
#pragma omp critical(dgbench_sampling)
    done(*worker);
  });
  caught.rethrow();
}

}  // namespace dgbench::sampling
