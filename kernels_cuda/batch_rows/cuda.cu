// Roots, distinct vertices, rows and messages of a batch, by numbers that stand on the device.
//
// Distinct ids come from a set of one bit to an id: its prefix sums rank every id, in ascending
// order, with no sort and no table to collide in. Grids are bounded, so that a capacity which is
// mostly empty costs little.
#include <algorithm>

#include "batch_rows/cuda_launchers.h"
#include "common/block_scan.cuh"
#include "common/launch.cuh"

namespace dgbench {
namespace {

__device__ __forceinline__ int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }

unsigned live_blocks(int64_t threads) {
  return static_cast<unsigned>(std::min(ceil_div(threads, kBlock), kLiveBlocks));
}

__global__ void __launch_bounds__(kBlock) mark_ids(const DistinctIds in) {
  const int64_t live = lesser(*in.live, in.capacity);
  const int64_t step = static_cast<int64_t>(gridDim.x) * kBlock;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kBlock + threadIdx.x; i < live; i += step) {
    const int64_t id = in.ids[i];
    if (id < 0 || id >= in.num_ids) continue;
    const uint32_t bit = 1u << (id & 31);
    uint32_t* const word = in.set + (id >> 5);
    if ((fresh(word) & bit) == 0) atomicOr(word, bit);  // hubs are named often
  }
}

__global__ void __launch_bounds__(kBlock) sum_set(const DistinctIds in, int64_t run) {
  __shared__ uint32_t warps[kBlockWarps];
  const int64_t first = blockIdx.x * run, end = lesser(first + run, set_words(in.num_ids));
  uint32_t mine = 0, whole = 0;
  for (int64_t w = first + threadIdx.x; w < end; w += kBlock) mine += __popc(in.set[w]);
  block_scan(mine, warps, whole);
  if (threadIdx.x == 0) in.sums[blockIdx.x] = whole;
}

// Every block adds up the sums before its own, as in temporal_sample/cuda.cu.
__global__ void __launch_bounds__(kBlock) rank_set(const DistinctIds in, int64_t run) {
  __shared__ uint32_t warps[kBlockWarps];
  uint32_t part = 0, base = 0;
  for (unsigned b = threadIdx.x; b < blockIdx.x; b += kBlock) part += in.sums[b];
  block_scan(part, warps, base);
  const int64_t first = blockIdx.x * run, end = lesser(first + run, set_words(in.num_ids));
  for (int64_t tile = first; tile < end; tile += kBlock) {
    const int64_t w = tile + threadIdx.x;
    uint32_t bits = w < end ? in.set[w] : 0;
    uint32_t whole = 0;
    uint32_t rank = base + block_scan(static_cast<uint32_t>(__popc(bits)), warps, whole);
    base += whole;
    if (w >= end) continue;
    in.ranks[w] = {rank, bits};
    if (bits != 0) in.set[w] = 0;
    for (; bits != 0; bits &= bits - 1) {
      in.distinct[rank++] = w * 32 + __ffs(static_cast<int>(bits)) - 1;
    }
  }
  if (blockIdx.x + 1 == gridDim.x && threadIdx.x == 0) *in.count = base;
}

__global__ void __launch_bounds__(kBlock) place_ids(const DistinctIds in) {
  const int64_t live = lesser(*in.live, in.capacity);
  const int64_t step = static_cast<int64_t>(gridDim.x) * kBlock;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kBlock + threadIdx.x; i < live; i += step) {
    const int64_t id = in.ids[i];
    int64_t at = -1;
    if (id >= 0 && id < in.num_ids) {
      const RankedWord word = in.ranks[id >> 5];
      at = int64_t{word.before} + __popc(word.bits & ((1u << (id & 31)) - 1));
    }
    in.place[i] = at;
  }
}

struct alignas(16) Sixteen {
  uint32_t words[4];
};

// A row by the lanes of a warp, whose loads do not wait for each other's stores.
template <class Part>
__device__ __forceinline__ void copy_parts(const void* from, void* to, int64_t parts, int lane) {
  constexpr int kEach = 4;
  const Part* const source = static_cast<const Part*>(from);
  Part* const target = static_cast<Part*>(to);
  for (int64_t first = lane; first < parts; first += 32 * kEach) {
    Part taken[kEach];
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      if (first + 32 * k < parts) taken[k] = source[first + 32 * k];
    }
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      if (first + 32 * k < parts) target[first + 32 * k] = taken[k];
    }
  }
}

// Rows of a table whose beginnings are multiples of 16 bytes, if all are.
__device__ __forceinline__ void copy_row(const RowTable& table, int64_t from, int64_t to,
                                         int lane) {
  const int64_t words = table.words;
  const uint32_t* const source = static_cast<const uint32_t*>(table.from) + from * words;
  uint32_t* const target = static_cast<uint32_t*>(table.to) + to * words;
  const auto either = reinterpret_cast<uintptr_t>(source) | reinterpret_cast<uintptr_t>(target);
  if (words % 4 == 0 && either % 16 == 0) {
    copy_parts<Sixteen>(source, target, words / 4, lane);
  } else {
    copy_parts<uint32_t>(source, target, words, lane);
  }
}

__global__ void __launch_bounds__(kBlock) gather_rows_by_count(const GatherByCount in) {
  const int64_t live = lesser(*in.live, in.capacity);
  const int warp = static_cast<int>(threadIdx.x) >> 5, lane = static_cast<int>(threadIdx.x) & 31;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kBlockWarps;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kBlockWarps + warp; i < live; i += step) {
    const int64_t id = in.ids[i];
    if (id < 0 || id >= in.rows) continue;
#pragma unroll
    for (int k = 0; k < kMostTables; ++k) {
      if (k < in.tables) copy_row(in.at[k], id, i, lane);
    }
  }
}

__global__ void __launch_bounds__(kBlock) note_last_entries(const LeaveMessages in) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kBlock;
  for (int64_t e = static_cast<int64_t>(blockIdx.x) * kBlock + threadIdx.x; e < 2 * in.count;
       e += step) {
    if (in.has_both(e)) atomicMax(in.last + in.row_of(e), static_cast<int32_t>(e));
  }
}

// A warp to an entry; only the last of each row writes.
__global__ void __launch_bounds__(kBlock) write_last_entries(const LeaveMessages in) {
  const int warp = static_cast<int>(threadIdx.x) >> 5, lane = static_cast<int>(threadIdx.x) & 31;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kBlockWarps;
  const int64_t mail = 2 * in.width + in.edge_width;
  for (int64_t e = static_cast<int64_t>(blockIdx.x) * kBlockWarps + warp; e < 2 * in.count;
       e += step) {
    if (!in.has_both(e)) continue;
    const int64_t row = in.row_of(e);
    const bool last = fresh(in.last + row) == e;
    __syncwarp();  // all lanes have read it
    if (!last) continue;
    if (lane == 0) in.last[row] = -1;  // others of the row find no entry of theirs there either
    const double t = in.t[e / 2], waits = in.mail_time[row];
    if (!(t >= waits)) continue;
    const int64_t v = in.distinct[row];
    const float* const own = in.memories + row * in.width;
    const float* const other = in.memories + in.row_of(e ^ 1) * in.width;
    float* const message = in.to_mail + v * mail;
    const auto width = static_cast<int32_t>(in.width);
    copy_row({own, in.to_memory + v * in.width, width}, 0, 0, lane);
    copy_row({own, message, width}, 0, 0, lane);
    copy_row({other, message + in.width, width}, 0, 0, lane);
    if (in.edge_width > 0) {
      copy_row({in.edges, message + 2 * in.width, static_cast<int32_t>(in.edge_width)}, e / 2, 0,
               lane);
    }
    if (lane != 0) continue;
    in.to_updated[v] = waits - waits == 0.0 ? waits : in.updated[row];
    in.to_mail_time[v] = t;
  }
}

}  // namespace

extern "C" {

int dgb_roots_of(const RootsOf* functor, void* stream) {
  return for_each(3 * functor->count, *functor, stream);
}

int dgb_distinct_ids(const DistinctIds* in, void* stream) {
  const cudaStream_t on = as_stream(stream);
  const int64_t run = set_run(in->num_ids);
  const auto blocks = static_cast<unsigned>(set_sums(in->num_ids));
  const unsigned wide = live_blocks(in->capacity);
  if (wide > 0) {
    mark_ids<<<wide, kBlock, 0, on>>>(*in);
    if (const int status = launch_status()) return status;
  }
  sum_set<<<blocks, kBlock, 0, on>>>(*in, run);
  if (const int status = launch_status()) return status;
  rank_set<<<blocks, kBlock, 0, on>>>(*in, run);
  if (const int status = launch_status()) return status;
  if (wide > 0) place_ids<<<wide, kBlock, 0, on>>>(*in);
  return launch_status();
}

int dgb_gather_by_count(const GatherByCount* in, void* stream) {
  const unsigned blocks = live_blocks(32 * in->capacity);
  if (blocks == 0 || in->tables == 0) return 0;
  gather_rows_by_count<<<blocks, kBlock, 0, as_stream(stream)>>>(*in);
  return launch_status();
}

int dgb_leave_messages(const LeaveMessages* in, void* stream) {
  const unsigned blocks = live_blocks(2 * in->count);
  if (blocks == 0) return 0;
  note_last_entries<<<blocks, kBlock, 0, as_stream(stream)>>>(*in);
  if (const int status = launch_status()) return status;
  const unsigned warps = live_blocks(64 * in->count);
  write_last_entries<<<warps, kBlock, 0, as_stream(stream)>>>(*in);
  return launch_status();
}

}  // extern "C"

}  // namespace dgbench
