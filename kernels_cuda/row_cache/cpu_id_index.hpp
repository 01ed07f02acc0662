// Where an id is kept: a map from ids to 32-bit numbers, as an array over all ids or as a hash table.
//
// Numbers from 0 are a cache's slots. While ids of a batch are looked up, an id that is not kept holds
// a mark (below kAbsent), so that its next occurrence is known; `unmark` takes the marks off, the last
// one first, which in a table of linear probing leaves every other entry where it was.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace dgbench {

constexpr std::int32_t kAbsent = -1;

// Four bytes for every id there may be: one read answers.
class DenseIndex {
 public:
  explicit DenseIndex(std::int64_t num_ids) { grow(num_ids); }

  void grow(std::int64_t num_ids) { cells_.resize(static_cast<std::size_t>(num_ids), kAbsent); }
  void make_room(std::int64_t) {}
  void prefetch(std::int64_t id) const { __builtin_prefetch(&cells_[static_cast<std::size_t>(id)]); }

  // The number of an id; an absent one is given the number `fresh` and kAbsent is returned.
  std::int32_t find_or_set(std::int64_t id, std::int32_t fresh) {
    std::int32_t& cell = cells_[static_cast<std::size_t>(id)];
    const std::int32_t found = cell;
    if (found == kAbsent) cell = fresh;
    return found;
  }
  void erase(std::int64_t id) { cells_[static_cast<std::size_t>(id)] = kAbsent; }
  void unmark(std::int64_t id) { erase(id); }
  std::int64_t nbytes() const { return static_cast<std::int64_t>(cells_.size() * sizeof(std::int32_t)); }

 private:
  std::vector<std::int32_t> cells_;
};

// 16 bytes for an entry at a load of at most a half, whatever the ids are.
class HashIndex {
 public:
  explicit HashIndex(std::int64_t) { rehash(6); }

  void grow(std::int64_t) {}

  // Room for so many more entries without moving any.
  void make_room(std::int64_t more) {
    int bits = 64 - shift_;
    while (2 * (used_ + more) > (std::int64_t{1} << bits)) ++bits;
    if (bits != 64 - shift_) rehash(bits);
  }
  void prefetch(std::int64_t id) const { __builtin_prefetch(&cells_[home(id)]); }

  std::int32_t find_or_set(std::int64_t id, std::int32_t fresh) {
    std::size_t at = home(id);
    while (cells_[at].id != id) {
      if (cells_[at].id == kEmpty) {
        cells_[at] = {id, fresh};
        ++used_;
        return kAbsent;
      }
      at = (at + 1) & mask_;
    }
    return cells_[at].number;
  }

  // Closes the gap, so that no search ends early: entries behind it move up where they may.
  void erase(std::int64_t id) {
    std::size_t gap = place(id);
    for (std::size_t at = (gap + 1) & mask_; cells_[at].id != kEmpty; at = (at + 1) & mask_) {
      const std::size_t from_home = (at - home(cells_[at].id)) & mask_;
      if (from_home >= ((at - gap) & mask_)) {
        cells_[gap] = cells_[at];
        gap = at;
      }
    }
    cells_[gap] = {};
    --used_;
  }
  void unmark(std::int64_t id) {  // the last one set: nothing was put behind it
    cells_[place(id)] = {};
    --used_;
  }
  std::int64_t nbytes() const { return static_cast<std::int64_t>(cells_.size() * sizeof(Cell)); }

 private:
  static constexpr std::int64_t kEmpty = -1;
  struct Cell {
    std::int64_t id = kEmpty;
    std::int32_t number = kAbsent;
  };

  std::size_t home(std::int64_t id) const {
    return static_cast<std::size_t>((static_cast<std::uint64_t>(id) * 0x9e3779b97f4a7c15ULL) >> shift_);
  }
  std::size_t place(std::int64_t id) const {
    std::size_t at = home(id);
    while (cells_[at].id != id) at = (at + 1) & mask_;
    return at;
  }
  void rehash(int bits) {
    std::vector<Cell> old = std::exchange(cells_, std::vector<Cell>(std::size_t{1} << bits));
    mask_ = (std::size_t{1} << bits) - 1;
    shift_ = 64 - bits;
    used_ = 0;
    for (const Cell& cell : old) {
      if (cell.id != kEmpty) find_or_set(cell.id, cell.number);
    }
  }

  std::vector<Cell> cells_;
  std::size_t mask_ = 0;
  std::int64_t used_ = 0;
  int shift_ = 64;
};

}  // namespace dgbench
