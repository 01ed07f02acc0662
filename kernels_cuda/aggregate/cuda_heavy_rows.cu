// Makes the table of a topology on the device: long rows (aggregate/heavy_rows.hpp) and tiles.
#include "aggregate/cuda_launchers.h"
#include "aggregate/heavy_rows.hpp"
#include "aggregate/tiles.hpp"
#include "common/launch.cuh"

namespace dgbench {
namespace {

// Enters row i where it has more than kHeavyRow entries.
struct ListHeavy {
  const int64_t* over_indptr;
  const int64_t* ex_indptr;  // or null
  HeavyRows heavy;

  __device__ void operator()(int64_t row) const {
    int64_t count = over_indptr[row + 1] - over_indptr[row];
    if (ex_indptr != nullptr) count += ex_indptr[row + 1] - ex_indptr[row];
    if (count <= kHeavyRow) return;
    const int segments = static_cast<int>((count + kSegment - 1) / kSegment);
    const int at = atomicAdd(heavy.at + kSegments, segments);
    int slot = -1;
    if (segments > 1) {
      slot = atomicAdd(heavy.at + kSlots, segments);
      int32_t* const split = heavy.split_row(atomicAdd(heavy.at + kSplitRows, 1));
      split[0] = static_cast<int32_t>(row);
      split[1] = slot;
      split[2] = segments;
    }
    for (int i = 0; i < segments; ++i) {
      int32_t* const segment = heavy.segment(at + i);
      const int64_t end = static_cast<int64_t>(i + 1) * kSegment;
      segment[0] = static_cast<int32_t>(row);
      segment[1] = i * kSegment;
      segment[2] = static_cast<int32_t>(end < count ? end : count);
      segment[3] = slot < 0 ? slot : slot + i;
    }
  }
};

}  // namespace

extern "C" {

int64_t dgb_tiles_at(int64_t entries) { return HeavyRows::size(entries); }

int64_t dgb_heavy_size(int64_t rows, int64_t entries) {
  return dgb_tiles_at(entries) + tiles_of(rows, entries) + 1;
}

int64_t dgb_heavy_slots(int64_t rows, int64_t entries) {
  const int64_t segments = HeavyRows::most_slots(entries), ends = 2 * tiles_of(rows, entries);
  return segments > ends ? segments : ends;
}

int dgb_list_heavy(const int64_t* over_indptr, const int64_t* ex_indptr, int64_t rows,
                   int64_t entries, int32_t* table, void* stream) {
  const cudaError_t error =
      cudaMemsetAsync(table, 0, kHeavyHead * sizeof(int32_t), as_stream(stream));
  if (error != cudaSuccess) return static_cast<int>(error);
  const int status =
      for_each(rows, ListHeavy{over_indptr, ex_indptr, HeavyRows(table, entries)}, stream);
  if (status != 0 || ex_indptr != nullptr) return status;
  return for_each(tiles_of(rows, entries) + 1,
                  ListTiles{over_indptr, rows, table + dgb_tiles_at(entries)}, stream);
}

}  // extern "C"

}  // namespace dgbench
