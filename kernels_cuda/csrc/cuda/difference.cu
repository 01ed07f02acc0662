// Rebuilding a snapshot from the one before it on the device (ESDG section 3.2): one launch that
// looks the changes up, one that writes every place of the new matrix.
#include "cuda/difference_launchers.h"
#include "cuda/launch.cuh"

namespace dgbench {
namespace {

constexpr int kTile = 1024;       // previous entries of a block
constexpr int kMostAdded = 2048;  // insertions in a tile beyond which they are searched in memory
constexpr int kRowsPerThread = 16;

// Blocks [0, tiles) move kept entries, the next ones put added entries, the last ones the offsets.
// Ranks are taken in the part of the sorted changes that can fall into a tile, held in shared
// memory; everything else is read once and in order.
__global__ void __launch_bounds__(kBlock)
    rebuild_kernel(Rebuild r, int64_t tiles, int64_t added_blocks) {
  __shared__ int64_t bounds[4];
  __shared__ int32_t gone_window[kTile];
  __shared__ int32_t come_window[kMostAdded];
  const int lane = static_cast<int>(threadIdx.x);
  const int64_t block = blockIdx.x;
  if (block >= tiles + added_blocks) {
    const int64_t first = ((block - tiles - added_blocks) * kBlock + lane) * kRowsPerThread;
    const int64_t stop = first + kRowsPerThread;
    if (first <= r.rows) r.put_offsets(first, stop < r.rows + 1 ? stop : r.rows + 1);
    return;
  }
  if (block >= tiles) {
    const int64_t j = (block - tiles) * kBlock + lane;
    if (j < r.added.count) r.put_added(j);
    return;
  }
  const int64_t first = block * kTile;
  const int64_t stop = first + kTile < r.nnz ? first + kTile : r.nnz;
  if (lane < 4) {
    const int32_t* list = lane < 2 ? r.removed_at : r.added_at;
    const int64_t count = lane < 2 ? r.removed : r.added.count;
    bounds[lane] = lower_bound(list, count, static_cast<int32_t>(lane % 2 == 0 ? first : stop));
  }
  __syncthreads();
  const int64_t gone_base = bounds[0];
  const int64_t come_base = bounds[2];
  const int64_t gone_count = bounds[1] - gone_base;
  const int64_t come_count = bounds[3] - come_base;
  const int32_t* gone = r.removed_at + gone_base;
  const int32_t* come = r.added_at + come_base;
  if (gone_count <= kTile) {
    for (int64_t k = lane; k < gone_count; k += kBlock) gone_window[k] = gone[k];
    gone = gone_window;
  }
  if (come_count <= kMostAdded) {
    for (int64_t k = lane; k < come_count; k += kBlock) come_window[k] = come[k];
    come = come_window;
  }
  __syncthreads();
  for (int64_t i = first + lane; i < stop; i += kBlock) {
    r.put_kept(i, gone, gone_count, gone_base, come, come_count, come_base);
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
  const int64_t offset_blocks = ceil_div(r.rows + 1, static_cast<int64_t>(kBlock) * kRowsPerThread);
  const auto blocks = static_cast<unsigned>(tiles + added_blocks + offset_blocks);
  rebuild_kernel<<<blocks, kBlock, 0, as_stream(stream)>>>(r, tiles, added_blocks);
  return launch_status();
}

}  // extern "C"

}  // namespace dgbench
