// The table of long rows of a topology: which segments blocks add up, and which rows have several.
//
// int32 words: a head of counts, then {row, first entry, last entry, slot} per segment, then
// {row, first slot, segments} per row of several segments. A slot is a place for a partial sum, -1
// where a segment is the whole row. Room is for as many as so many entries can make.
#pragma once

#include <cstdint>

#include "common/host_device.hpp"

namespace dgbench {

constexpr int kHeavyRow = 128;    // entries of a row that is not in the table, at most
constexpr int kSegment = 1024;    // entries of a segment, at most
constexpr int kOwnersMost = 1024;  // kHeavyRow of the form without segments
constexpr int kHeavyHead = 4;
enum HeavyCount { kSegments, kSplitRows, kSlots };

struct HeavyRows {
  int32_t* at = nullptr;
  int64_t split_at = 0;

  HeavyRows() = default;
  HeavyRows(int32_t* table, int64_t entries)
      : at(table), split_at(kHeavyHead + 4 * most_segments(entries)) {}

  DGB_HD int32_t* segment(int64_t i) const { return at + kHeavyHead + 4 * i; }
  DGB_HD int32_t* split_row(int64_t i) const { return at + split_at + 3 * i; }

  static int64_t most_split_rows(int64_t entries) { return entries / (kSegment + 1); }
  static int64_t most_slots(int64_t entries) {
    return entries / kSegment + most_split_rows(entries);
  }
  static int64_t most_segments(int64_t entries) {
    return entries / kSegment + entries / (kHeavyRow + 1);
  }
  static int64_t size(int64_t entries) {
    return kHeavyHead + 4 * most_segments(entries) + 3 * most_split_rows(entries);
  }
};

}  // namespace dgbench
