// Splitting snapshots into shared and exclusive entries on the device. A thread merges the rows of one
// vertex; rows that are long together are cut into tiles of entries that blocks look at on their own: an
// entry is shared where a search finds it in every other snapshot, and stands where as many shared ones
// are before it as the tiles in front have and its own tile has.
#include "common/block_scan.cuh"
#include "common/launch.cuh"
#include "overlap/cuda_launchers.h"

namespace dgbench {
namespace {

constexpr int64_t kLongRow = 1024;   // entries of a row of all snapshots that one thread merges, at most
constexpr int64_t kTile = 2048;      // entries of a tile
constexpr unsigned kTileBlocks = 2048;

DGB_HD int64_t length_of(const SnapshotRows& rows, int i, int64_t row) {
  return rows.indptr[i][row + 1] - rows.indptr[i][row];
}

DGB_HD bool is_long(const SnapshotRows& rows, int64_t row) {
  int64_t entries = 0;
  for (int i = 0; i < rows.count; ++i) entries += length_of(rows, i, row);
  return entries > kLongRow;
}

// The scratch of a call for both passes: how many long rows there are, the rows, and the shared entries
// of their tiles in the order of rows, snapshots and tiles.
struct LongRows {
  int32_t* count;  // null: no row counts as long
  int32_t* rows;
  int32_t* sums;

  LongRows(int32_t* scratch, int64_t entries)
      : count(scratch), rows(scratch + 1), sums(scratch + 1 + most_rows(entries)) {}

  static int64_t most_rows(int64_t entries) { return entries / (kLongRow + 1); }
  static int64_t size(int64_t entries, int64_t snapshots) {
    return 1 + most_rows(entries) + entries / kTile + snapshots * most_rows(entries);
  }
};

struct CountShort {
  CountShared all;
  LongRows longs;

  __device__ void operator()(int64_t row) const {
    if (longs.count == nullptr || !is_long(all.rows, row)) return all(row);
    all.counts[row] = 0;
    longs.rows[atomicAdd(longs.count, 1)] = static_cast<int32_t>(row);
  }
};

struct FillShort {
  FillSplit all;
  bool leaves_long;

  __device__ void operator()(int64_t row) const {
    if (!leaves_long || !is_long(all.rows, row)) all(row);
  }
};

// Whether the entry at `place` of a row is in all snapshots.
__device__ bool is_shared(const SnapshotRows& rows, int64_t slice_cap, int64_t row, int i,
                          int64_t place) {
  if (slice_cap == 0) {
    const int32_t column = rows.indices[i][rows.indptr[i][row] + place];
    for (int j = 0; j < rows.count; ++j) {
      int64_t low = rows.indptr[j][row], high = rows.indptr[j][row + 1];
      const int64_t end = high;
      while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (rows.indices[j][middle] < column) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
      if (low == end || rows.indices[j][low] != column) return false;
    }
    return true;
  }
  const int64_t begin = place / slice_cap * slice_cap;
  const auto in_slice = [&](int j) {
    const int64_t rest = length_of(rows, j, row) - begin;
    return rest < slice_cap ? rest : slice_cap;
  };
  const int64_t size = in_slice(i);
  for (int j = 0; j < rows.count; ++j) {
    if (in_slice(j) != size) return false;
    const int32_t* const mine = rows.indices[i] + rows.indptr[i][row] + begin;
    const int32_t* const other = rows.indices[j] + rows.indptr[j][row] + begin;
    for (int64_t k = 0; k < size; ++k) {
      if (mine[k] != other[k]) return false;
    }
  }
  return true;
}

// Calls visit(row, snapshot, first entry, number of the tile, number of the row's first tile of that
// snapshot) for this block's share of all tiles.
template <class Visit>
__device__ void each_tile(const SnapshotRows& rows, const LongRows& longs, const Visit& visit) {
  const int count = *longs.count;
  int64_t tile = 0;  // of all, the first of the row and snapshot
  int64_t mine = blockIdx.x;
  for (int r = 0; r < count; ++r) {
    const int64_t row = longs.rows[r];
    for (int i = 0; i < rows.count; ++i) {
      const int64_t tiles = (length_of(rows, i, row) + kTile - 1) / kTile;
      for (; mine < tile + tiles; mine += gridDim.x) {
        visit(row, i, (mine - tile) * kTile, mine, tile);
      }
      tile += tiles;
    }
  }
}

__global__ void __launch_bounds__(kBlock) count_long(const CountShared c, const LongRows longs) {
  __shared__ int64_t warps[kBlockWarps];
  each_tile(c.rows, longs, [&](int64_t row, int i, int64_t first, int64_t tile, int64_t) {
    const int64_t length = length_of(c.rows, i, row);
    const int64_t end = first + kTile < length ? first + kTile : length;
    int64_t found = 0, whole = 0;
    for (int64_t place = first + threadIdx.x; place < end; place += kBlock) {
      found += is_shared(c.rows, c.slice_cap, row, i, place) ? 1 : 0;
    }
    block_scan(found, warps, whole);
    if (threadIdx.x != 0) return;
    longs.sums[tile] = static_cast<int32_t>(whole);
    if (i == 0) {
      atomicAdd(reinterpret_cast<unsigned long long*>(c.counts + row),
                static_cast<unsigned long long>(whole));
    }
  });
}

__global__ void __launch_bounds__(kBlock) fill_long(const FillSplit f, const LongRows longs) {
  __shared__ int64_t warps[kBlockWarps];
  const SnapshotRows& rows = f.rows;
  each_tile(rows, longs, [&](int64_t row, int i, int64_t first, int64_t tile, int64_t row_tile) {
    int64_t part = 0, before = 0;
    for (int64_t t = row_tile + threadIdx.x; t < tile; t += kBlock) part += longs.sums[t];
    block_scan(part, warps, before);
    const int64_t begin = rows.indptr[i][row];
    const int64_t length = length_of(rows, i, row);
    const int64_t end = first + kTile < length ? first + kTile : length;
    const int64_t over = f.over_indptr[row];
    for (int64_t from = first; from < end; from += kBlock) {
      const int64_t place = from + threadIdx.x;
      const bool shared = place < end && is_shared(rows, f.slice_cap, row, i, place);
      int64_t whole = 0;
      const int64_t rank = before + block_scan<int64_t>(shared ? 1 : 0, warps, whole);
      before += whole;
      if (place >= end) continue;
      const int64_t at = begin + place;
      if (!shared) {
        const int64_t to = begin - over + place - rank;
        f.exclusive_indices[i][to] = rows.indices[i][at];
        if (f.weighted) f.exclusive_values[i][to] = f.values[i][at];
        continue;
      }
      if (i == 0) f.over_indices[over + rank] = rows.indices[0][at];
      if (f.weighted) f.over_values[(over + rank) * rows.count + i] = f.values[i][at];
    }
  });
}

}  // namespace

extern "C" {

int64_t dgb_long_rows_size(int64_t entries, int64_t snapshots) {
  return LongRows::size(entries, snapshots);
}

int dgb_count_shared(const CountShared* functor, int64_t rows, int64_t entries, int32_t* long_rows,
                     void* stream) {
  const LongRows longs(long_rows, entries);
  if (long_rows != nullptr) {
    const cudaError_t error = cudaMemsetAsync(long_rows, 0, sizeof(int32_t), as_stream(stream));
    if (error != cudaSuccess) return static_cast<int>(error);
  }
  const int status = for_each(rows, CountShort{*functor, longs}, stream);
  if (status != 0 || long_rows == nullptr || entries <= kLongRow) return status;
  count_long<<<kTileBlocks, kBlock, 0, as_stream(stream)>>>(*functor, longs);
  return launch_status();
}

int dgb_split(const FillSplit* functor, int64_t rows, int64_t entries, int32_t* long_rows,
              void* stream) {
  const LongRows longs(long_rows, entries);
  const int status = for_each(rows, FillShort{*functor, long_rows != nullptr}, stream);
  if (status != 0 || long_rows == nullptr || entries <= kLongRow) return status;
  fill_long<<<kTileBlocks, kBlock, 0, as_stream(stream)>>>(*functor, longs);
  return launch_status();
}

}  // extern "C"

}  // namespace dgbench
