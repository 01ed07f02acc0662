// Rebuilding a snapshot from the one before it on the device (ESDG section 3.2): one launch that
// looks the changes up, one that writes every place of the new matrix.
#include "common/launch.cuh"
#include "difference/cuda_launchers.h"

namespace dgbench {
namespace {

constexpr int kTile = 1024;       // previous entries, or rows, of a block
constexpr int kMaxAdded = 2048;  // insertions in a tile beyond which they are searched in memory
constexpr int kEach = kTile / kBlock;

// `lower_bound` by a warp: 32 looks at a time, three rounds for 30 thousand entries where one thread
// takes fifteen steps, each of which waits for memory.
template <class List, class T>
__device__ int64_t warp_lower_bound(const List& sorted, int64_t n, T key) {
  const auto lane = static_cast<int64_t>(threadIdx.x % 32);
  int64_t low = 0;
  int64_t end = n;  // the place is in [low, end]
  while (low < end) {
    const int64_t step = (end - low) / 33 + 1;
    const int64_t at = low + (lane + 1) * step - 1;
    const bool less = at < end && sorted[at] < key;
    low += step * __popc(__ballot_sync(0xffffffffu, less));
    end = low + step - 1 < end ? low + step - 1 : end;
  }
  return low;
}

// The part of the sorted changes that a tile needs, in shared memory where it fits.
struct Windows {
  int64_t bounds[4];
  int32_t gone[kTile];
  int32_t come[kMaxAdded];
};

// The rows of added entries in memory or, narrowed, in shared memory.
struct RowWindow {
  Ids far;
  const int32_t* near;

  __device__ int64_t operator[](int64_t k) const { return near != nullptr ? near[k] : far[k]; }
};

__device__ const int32_t* bring_gone(const Rebuild& r, Windows& w, int64_t base, int64_t count) {
  if (count > kTile) return r.removed_at + base;
  for (int64_t k = threadIdx.x; k < count; k += kBlock) w.gone[k] = r.removed_at[base + k];
  return w.gone;
}

// Entries [first, stop) of the previous matrix.
__device__ void keep(const Rebuild& r, Windows& w, int64_t first, int64_t stop) {
  int32_t columns[kEach];  // asked for before anything is searched
  for (int k = 0; k < kEach; ++k) {
    const int64_t i = first + k * kBlock + threadIdx.x;
    columns[k] = i < stop ? r.indices[i] : 0;
  }
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (warp < 4) {
    const int32_t* list = warp < 2 ? r.removed_at : r.added_at;
    const int64_t count = warp < 2 ? r.removed : r.added.count;
    const int64_t found =
        warp_lower_bound(list, count, static_cast<int32_t>(warp % 2 == 0 ? first : stop));
    if (threadIdx.x % 32 == 0) w.bounds[warp] = found;
  }
  __syncthreads();
  const int64_t gone_base = w.bounds[0];
  const int64_t come_base = w.bounds[2];
  const int64_t gone_count = w.bounds[1] - gone_base;
  const int64_t come_count = w.bounds[3] - come_base;
  const int32_t* const gone = bring_gone(r, w, gone_base, gone_count);
  const int32_t* come = r.added_at + come_base;
  if (come_count <= kMaxAdded) {
    for (int64_t k = threadIdx.x; k < come_count; k += kBlock) w.come[k] = come[k];
    come = w.come;
  }
  __syncthreads();
  for (int k = 0; k < kEach; ++k) {
    const int64_t i = first + k * kBlock + threadIdx.x;
    if (i >= stop) continue;
    r.put_kept(i, columns[k], gone, gone_count, gone_base, come, come_count, come_base);
  }
}

// Added entries [first, stop).
__device__ void add(const Rebuild& r, Windows& w, int64_t first, int64_t stop) {
  const int64_t j = first + threadIdx.x;
  if (r.indptr == nullptr) {
    if (j < stop) r.put(j, r.added.columns[j]);
    return;
  }
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (warp < 2) {
    const int32_t key = r.added_at[warp == 0 ? first : stop - 1];
    const int64_t found = warp_lower_bound(r.removed_at, r.removed, key);
    if (threadIdx.x % 32 == 0) w.bounds[warp] = found;
  }
  __syncthreads();
  const int64_t base = w.bounds[0];
  const int64_t count = w.bounds[1] - base;
  const int32_t* const gone = bring_gone(r, w, base, count);
  __syncthreads();
  if (j < stop) r.put_added(j, gone, count, base);
}

// Offsets of rows [first, stop).
__device__ void offsets(const Rebuild& r, Windows& w, int64_t first, int64_t stop) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (warp < 4) {
    const int64_t row = warp % 2 == 0 ? first : stop - 1;
    int64_t found = 0;
    if (warp >= 2) {
      found = warp_lower_bound(r.added.rows, r.added.count, row);
    } else if (r.indptr != nullptr) {
      found = warp_lower_bound(r.removed_at, r.removed, static_cast<int32_t>(r.indptr[row]));
    }
    if (threadIdx.x % 32 == 0) w.bounds[warp] = found;
  }
  __syncthreads();
  const int64_t gone_base = w.bounds[0];
  const int64_t come_base = w.bounds[2];
  const int64_t gone_count = w.bounds[1] - gone_base;
  const int64_t come_count = w.bounds[3] - come_base;
  const int32_t* const gone = bring_gone(r, w, gone_base, gone_count);
  RowWindow come{r.added.rows.from(come_base), nullptr};
  if (come_count <= kMaxAdded) {
    for (int64_t k = threadIdx.x; k < come_count; k += kBlock) {
      w.come[k] = static_cast<int32_t>(come.far[k]);
    }
    come.near = w.come;
  }
  __syncthreads();
  for (int64_t row = first + threadIdx.x; row < stop; row += kBlock) {
    r.put_offset(row, r.begin_of(row), gone, gone_count, gone_base, come, come_count, come_base);
  }
}

// Blocks [0, tiles) move kept entries, the next ones put added entries, the last ones the offsets.
// Ranks are taken in the part of the sorted changes that can fall into a tile; everything else is
// read once and in order.
__global__ void __launch_bounds__(kBlock)
    rebuild_kernel(Rebuild r, int64_t tiles, int64_t added_blocks) {
  __shared__ Windows windows;
  const int64_t block = blockIdx.x;
  if (block < tiles) {
    const int64_t first = block * kTile;
    keep(r, windows, first, first + kTile < r.nnz ? first + kTile : r.nnz);
  } else if (block < tiles + added_blocks) {
    const int64_t first = (block - tiles) * kBlock;
    add(r, windows, first, first + kBlock < r.added.count ? first + kBlock : r.added.count);
  } else {
    const int64_t first = (block - tiles - added_blocks) * kTile;
    offsets(r, windows, first, first + kTile < r.rows + 1 ? first + kTile : r.rows + 1);
  }
}

}  // namespace

extern "C" {

int dgb_locate_changes(const LocateChange* functor, void* stream) {
  return for_each(functor->removed.count + functor->added.count, *functor, stream);
}

int dgb_rebuild(const Rebuild* functor, void* stream) {
  const Rebuild& r = *functor;
  const int64_t tiles = ceil_div(r.nnz, kTile);
  const int64_t added_blocks = ceil_div(r.added.count, kBlock);
  const int64_t offset_blocks = ceil_div(r.rows + 1, kTile);
  const auto blocks = static_cast<unsigned>(tiles + added_blocks + offset_blocks);
  rebuild_kernel<<<blocks, kBlock, 0, as_stream(stream)>>>(r, tiles, added_blocks);
  return launch_status();
}

}  // extern "C"

}  // namespace dgbench
