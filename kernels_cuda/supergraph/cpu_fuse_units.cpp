// Spatial fusion of DGC (5.1.1): fuse the pair of groups that load most rows twice, again and again.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstdint>
#include <queue>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "common/check.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace dgbench {
namespace {

struct Pair {
  std::int64_t rows, low, high;
  // The largest first, of equals the smallest names: the order does not hang on any hash.
  bool operator<(const Pair& other) const {
    if (rows != other.rows) return rows < other.rows;
    if (low != other.low) return low > other.low;
    return high > other.high;
  }
};

class Fusion {
 public:
  Fusion(std::int64_t units, const double* memory, double limit, double close)
      : needs_(units), near_(units), into_(units), size_(memory, memory + units),
        frozen_(units), limit_(limit), close_(close * limit) {
    for (std::int64_t a = 0; a < units; ++a) {
      into_[a] = a;
      frozen_[a] = size_[a] >= close_;
    }
  }

  void read(const std::int64_t* reader, const std::int64_t* row, const std::int64_t* owner,
            std::size_t count, std::int64_t rows) {
    home_.assign(rows, -1);
    for (std::size_t i = 0; i < count; ++i) {
      home_[row[i]] = owner[i];
      if (!needs_[reader[i]].insert(row[i]).second) continue;
      ++near_[reader[i]][owner[i]];
      ++near_[owner[i]][reader[i]];
    }
    for (std::int64_t a = 0; a < static_cast<std::int64_t>(near_.size()); ++a) {
      for (const auto& [b, shared] : near_[a]) {
        if (a < b) heap_.push({shared, a, b});
      }
    }
  }

  void run() {
    while (!heap_.empty()) {
      const Pair best = heap_.top();
      heap_.pop();
      if (!valid(best) || size_[best.low] + size_[best.high] > limit_) continue;
      merge(best);
    }
  }

  std::int64_t find(std::int64_t a) {
    while (into_[a] != a) a = into_[a] = into_[into_[a]];
    return a;
  }

  std::int64_t merges = 0, saved = 0;
  std::int64_t frozen() const { return std::count(frozen_.begin(), frozen_.end(), 1); }

 private:
  // An entry is out of date where a group was fused since, or the pair has another number by now.
  bool valid(const Pair& pair) const {
    if (into_[pair.low] != pair.low || into_[pair.high] != pair.high) return false;
    if (frozen_[pair.low] || frozen_[pair.high]) return false;
    const auto found = near_[pair.low].find(pair.high);
    return found != near_[pair.low].end() && found->second == pair.rows;
  }

  void merge(const Pair& pair) {
    const std::int64_t a = pair.low, b = pair.high;
    into_[b] = a;
    near_[a].erase(b);
    changed_.clear();
    for (const auto& [c, shared] : near_[b]) {
      if (c == a) continue;
      near_[c].erase(b);
      near_[a][c] += shared;
      changed_.push_back(c);
    }
    near_[b] = {};
    // A row of a third group that both load is loaded once from now on. Rows that became the
    // group's own stay in its set and are passed over by their home.
    if (needs_[a].size() < needs_[b].size()) std::swap(needs_[a], needs_[b]);
    for (const std::int64_t j : needs_[b]) {
      if (needs_[a].insert(j).second) continue;
      const std::int64_t c = find(home_[j]);
      if (c == a) continue;
      --near_[a][c];
      ++saved;
    }
    needs_[b] = {};
    for (const std::int64_t c : changed_) {
      const std::int64_t shared = near_[a][c];
      near_[c][a] = shared;
      heap_.push({shared, std::min(a, c), std::max(a, c)});
    }
    size_[a] += size_[b];
    frozen_[b] = 0;
    frozen_[a] = size_[a] >= close_;
    saved += pair.rows;
    ++merges;
  }

  std::vector<std::unordered_set<std::int64_t>> needs_;                // rows of others that it loads
  std::vector<std::unordered_map<std::int64_t, std::int64_t>> near_;  // r with every other group
  std::vector<std::int64_t> into_, home_, changed_;
  std::vector<double> size_;
  std::vector<char> frozen_;
  std::priority_queue<Pair> heap_;
  double limit_, close_;
};

// See systems/dgc/fusion.py. `total` gets merges, rows saved and frozen groups.
void fuse_units(Array<const std::int64_t> reader, Array<const std::int64_t> row,
                Array<const std::int64_t> owner, std::int64_t rows, Array<const double> memory,
                double limit, double close, Array<std::int64_t> root,
                Array<std::int64_t> total) {
  const std::size_t count = reader.size(), units = root.size();
  check_size(row, count, "row");
  check_size(owner, count, "owner");
  check_size(memory, units, "memory");
  check_size(total, 3, "total");
  for (std::size_t i = 0; i < count; ++i) {
    const auto end = static_cast<std::int64_t>(units);
    const std::int64_t a = reader.data()[i], b = owner.data()[i], j = row.data()[i];
    if (a < 0 || a >= end || b < 0 || b >= end || a == b || j < 0 || j >= rows) {
      reject("reader and owner must be two units, row must lie in [0, rows)");
    }
  }
  nb::gil_scoped_release release;
  Fusion fusion(static_cast<std::int64_t>(units), memory.data(), limit, close);
  fusion.read(reader.data(), row.data(), owner.data(), count, rows);
  fusion.run();
  for (std::size_t a = 0; a < units; ++a) {
    root.data()[a] = fusion.find(static_cast<std::int64_t>(a));
  }
  total.data()[0] = fusion.merges;
  total.data()[1] = fusion.saved;
  total.data()[2] = fusion.frozen();
}

}  // namespace

void bind_fuse_units(nb::module_& m) {
  m.def("fuse_units", &fuse_units, "reader"_a.noconvert(), "row"_a.noconvert(),
        "owner"_a.noconvert(), "rows"_a, "memory"_a.noconvert(), "limit"_a, "close"_a,
        "root"_a.noconvert(), "total"_a.noconvert());
}

}  // namespace dgbench
