// One semi-synchronous sweep of weighted label propagation with a cap on label sizes, the same rule
// and so the same labels as on the CPU (label_propagation/cpu.cpp): votes are integers, and whom a
// full label serves is a total order.
//
// A round of a block of vertices: vertices wish, and add themselves to what wants to arrive at a
// label; where all that arrives fits, all are granted; the rest is sorted by label, gain and vertex,
// and a prefix of each label is granted; then labels and loads change and neighbours wake. The two
// values of a load never meet: it is read before and written after.
// A round costs five launches and one for each doubling of kTile up to the block, however few vertices
// it has, so blocks should be far larger here than on the CPU.
#include "common/block_scan.cuh"
#include "label_propagation/cuda_launchers.h"
#include "label_propagation/functors.hpp"

namespace dgbench {
namespace {

constexpr int kShortRow = 16;    // longer rows are added up by a whole block of threads
constexpr int kSlots = 2048;     // of the table that it uses
constexpr int kHalf = kSlots / 2;
constexpr int32_t kEmpty = -1;
constexpr int kTile = 1024;       // wishes that a block of threads sorts at once
enum Verdict : int32_t { kNone, kGranted, kContested };

__device__ __forceinline__ void add(int64_t* to, int64_t value) {
  atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(value));
}

__device__ __forceinline__ int64_t weight_of(const LabelSweep& s, int64_t v) {
  return s.vertex_weight != nullptr ? s.vertex_weight[v] : 1;
}

__device__ __forceinline__ int64_t vote_of(const LabelSweep& s, int64_t v, int64_t e) {
  if (s.indices[e] == v) return 0;
  return s.edge_weight != nullptr ? s.edge_weight[e] : 1;
}

__device__ __forceinline__ bool wins(const LabelSweep& s, int64_t v, const Vote& vote,
                                     int64_t home, const Vote& best) {
  return vote.weight > home && better(vote, best) &&
         has_room(s.loads[vote.label], weight_of(s, v), s.cap);
}

__device__ void record(const LabelSweep& s, int64_t v, int64_t place, const Vote& best,
                       int64_t home) {
  if (best.label == s.labels[v]) return;
  s.wished[place] = best.label;
  s.gains[place] = best.weight - home;
  add(s.arrivals + best.label, weight_of(s, v));
}

__device__ void wish_short(const LabelSweep& s, int64_t v, int64_t place) {
  const int64_t first = s.indptr[v];
  const int count = static_cast<int>(s.indptr[v + 1] - first);
  const int32_t own = s.labels[v];
  int32_t label[kShortRow];
  int64_t weight[kShortRow], home = 0;
  for (int i = 0; i < count; ++i) {
    label[i] = s.labels[s.indices[first + i]];
    weight[i] = vote_of(s, v, first + i);
    if (label[i] == own) home += weight[i];
  }
  Vote best{0, own};
  for (int i = 0; i < count; ++i) {
    if (label[i] == own) continue;
    Vote vote{0, label[i]};
    bool seen = false;
    for (int j = 0; j < count; ++j) {
      if (label[j] != label[i]) continue;
      seen = seen || j < i;
      vote.weight += weight[j];
    }
    if (!seen && wins(s, v, vote, home, best)) best = vote;
  }
  record(s, v, place, best, home);
}

// The table of a long row, one for the threads of a block. Labels that differ in `parts` classes of
// their hash take turns in it; where a class does not fit there are twice as many.
struct Table {
  int32_t label[kSlots];
  unsigned long long weight[kSlots];
  unsigned long long home;
  Vote best[kBlock];
  int overflow;
};

__device__ void wish_long(const LabelSweep& s, int64_t v, int64_t place, Table& table) {
  const int64_t first = s.indptr[v], stop = s.indptr[v + 1];
  const int32_t own = s.labels[v];
  if (threadIdx.x == 0) table.home = 0;
  __syncthreads();
  for (int64_t e = first + threadIdx.x; e < stop; e += kBlock) {
    if (s.labels[s.indices[e]] == own) {
      atomicAdd(&table.home, static_cast<unsigned long long>(vote_of(s, v, e)));
    }
  }
  __syncthreads();
  const auto home = static_cast<int64_t>(table.home);
  uint32_t parts = 1;
  while (static_cast<int64_t>(parts) * kHalf < stop - first) parts *= 2;
  Vote best{0, own};
  for (uint32_t part = 0; part < parts; ++part) {
    for (int i = threadIdx.x; i < kSlots; i += kBlock) {
      table.label[i] = kEmpty;
      table.weight[i] = 0;
    }
    if (threadIdx.x == 0) table.overflow = 0;
    __syncthreads();
    for (int64_t e = first + threadIdx.x; e < stop; e += kBlock) {
      const int32_t label = s.labels[s.indices[e]];
      // Different labels have different hashes, so some number of parts always separates them.
      const uint32_t hash = label_hash(static_cast<uint32_t>(label), 0x9E3779B9u);
      if (label == own || (hash & (parts - 1)) != part) continue;
      uint32_t slot = (hash >> 16) & (kSlots - 1);
      int probes = 0;
      for (; probes < kSlots; ++probes, slot = (slot + 1) & (kSlots - 1)) {
        const int32_t there = atomicCAS(table.label + slot, kEmpty, label);
        if (there == kEmpty || there == label) break;
      }
      if (probes == kSlots) {
        table.overflow = 1;
      } else {
        atomicAdd(table.weight + slot, static_cast<unsigned long long>(vote_of(s, v, e)));
      }
    }
    __syncthreads();
    if (table.overflow) {
      __syncthreads();
      // Begin anew: what was found so far stays right, and is found again.
      parts *= 2;
      part = 0xFFFFFFFFu;
      continue;
    }
    for (int i = threadIdx.x; i < kSlots; i += kBlock) {
      if (table.label[i] == kEmpty) continue;
      const Vote vote{static_cast<int64_t>(table.weight[i]), table.label[i]};
      if (wins(s, v, vote, home, best)) best = vote;
    }
    __syncthreads();
  }
  table.best[threadIdx.x] = best;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 1; i < kBlock; ++i) {
      if (better(table.best[i], best)) best = table.best[i];
    }
    record(s, v, place, best, home);
  }
  __syncthreads();
}

__global__ void __launch_bounds__(kBlock) label_wish(const LabelSweep s, int64_t first,
                                                     int64_t size, uint32_t round) {
  __shared__ Table table;
  __shared__ bool is_long[kBlock];
  __shared__ int looked;
  if (threadIdx.x == 0) looked = 0;
  __syncthreads();
  const int64_t place = static_cast<int64_t>(blockIdx.x) * kBlock + threadIdx.x;
  bool is_mine_long = false;
  if (place < size) {
    const int64_t v = first + place;
    s.wished[place] = -1;
    s.verdicts[place] = kNone;
    const bool due = (s.active == nullptr || s.active[v] != 0) &&
                     (label_hash(static_cast<uint32_t>(v), s.salt) & (s.rounds - 1)) == round;
    if (due) {
      if (s.active != nullptr) s.active[v] = 0;
      atomicAdd(&looked, 1);
      is_mine_long = s.indptr[v + 1] - s.indptr[v] > kShortRow;
      if (!is_mine_long) wish_short(s, v, place);
    }
  }
  is_long[threadIdx.x] = is_mine_long;
  const int any_long = __syncthreads_or(is_mine_long);
  if (threadIdx.x == 0 && looked > 0) add(s.counts + 1, looked);
  if (!any_long) return;
  for (int i = 0; i < kBlock; ++i) {
    const int64_t other = static_cast<int64_t>(blockIdx.x) * kBlock + i;
    if (is_long[i]) wish_long(s, first + other, other, table);
  }
}

// Grants where all that arrives fits; lists the rest.
struct LabelAdmit {
  LabelSweep s;

  __device__ void operator()(int64_t place) const {
    const int32_t label = s.wished[place];
    if (label < 0) return;
    if (has_room(s.loads[label], s.arrivals[label], s.cap)) {
      s.verdicts[place] = kGranted;
      return;
    }
    s.verdicts[place] = kContested;
    const auto slot = atomicAdd(reinterpret_cast<unsigned long long*>(s.counts + 2), 1ull);
    s.contested[slot] = static_cast<int32_t>(place);
  }
};

__device__ __forceinline__ Wish wish_at(const LabelSweep& s, int32_t place) {
  return {s.gains[place], s.wished[place], place};
}

// Runs of kTile contested places in the order of service, in the first half of `contested`.
__global__ void __launch_bounds__(kBlock) sort_tiles(const LabelSweep s) {
  __shared__ Wish tile[kTile];
  const int64_t count = s.counts[2];
  const int64_t step = static_cast<int64_t>(gridDim.x) * kTile;
  for (int64_t begin = static_cast<int64_t>(blockIdx.x) * kTile; begin < count; begin += step) {
    const int here = count - begin < kTile ? static_cast<int>(count - begin) : kTile;
    int padded = 1;
    while (padded < here) padded *= 2;
    for (int i = threadIdx.x; i < padded; i += kBlock) {
      tile[i] = i < here ? wish_at(s, s.contested[begin + i]) : Wish{0, INT32_MAX, INT32_MAX};
    }
    __syncthreads();
    for (int run = 2; run <= padded; run *= 2) {
      for (int distance = run / 2; distance > 0; distance /= 2) {
        for (int i = threadIdx.x; i < padded; i += kBlock) {
          const int other = i ^ distance;
          if (other < i) continue;
          const Wish a = tile[i], b = tile[other];
          const bool rising = (i & run) == 0;
          if (rising ? served_before(b, a) : served_before(a, b)) {
            tile[i] = b;
            tile[other] = a;
          }
        }
        __syncthreads();
      }
    }
    for (int i = threadIdx.x; i < here; i += kBlock) s.contested[begin + i] = tile[i].vertex;
    __syncthreads();
  }
}

// Merges neighbouring runs from one half of `contested` into the other: a place goes as far behind the
// beginning of both as it stands in its own run and as many of the other run are served before it.
__global__ void __launch_bounds__(kBlock) merge_runs(const LabelSweep s, const int32_t* from,
                                                     int32_t* to, int64_t run) {
  const int64_t count = s.counts[2];
  if (run >= count) return;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kBlock;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kBlock + threadIdx.x; i < count; i += step) {
    const int64_t mine = i / run * run, both = i / (2 * run) * (2 * run);
    const int64_t other = mine == both ? mine + run : both;
    const int64_t stop = other + run < count ? other + run : count;
    const Wish wish = wish_at(s, from[i]);
    int64_t low = other < count ? other : count, high = stop;
    const int64_t begin = low;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (served_before(wish_at(s, from[middle]), wish)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    to[both + (i - mine) + (low - begin)] = from[i];
  }
}

// A warp looks for the first place of each label among 32, and serves that label as far as it has room,
// 32 places at a time. Nobody behind the first who does not fit is served.
__global__ void __launch_bounds__(kBlock) label_serve(const LabelSweep s, int64_t first) {
  const int64_t count = s.counts[2];
  const int32_t* sorted = s.contested;
  for (int64_t run = kTile; run < count; run *= 2) {
    sorted = sorted == s.contested ? s.contested + s.queue_capacity() : s.contested;
  }
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kBlock;
  int64_t at = static_cast<int64_t>(blockIdx.x) * kBlock + (threadIdx.x & ~31u);
  for (; at < count; at += step) {
    const int64_t i = at + lane;
    const int32_t mine = i < count ? s.wished[sorted[i]] : -1;
    const bool is_head = i < count && (i == 0 || s.wished[sorted[i - 1]] != mine);
    for (unsigned heads = __ballot_sync(kAllLanes, is_head); heads != 0; heads &= heads - 1) {
      const int head = __ffs(static_cast<int>(heads)) - 1;
      const int32_t label = __shfl_sync(kAllLanes, mine, head);
      int64_t load = s.loads[label];
      for (int64_t k = at + head;; k += 32) {
        const int32_t place = k + lane < count ? sorted[k + lane] : -1;
        const bool wants = place >= 0 && s.wished[place] == label;
        const int64_t weight = wants ? weight_of(s, first + place) : 0;
        const int64_t sum = warp_scan(weight);
        const bool fits = wants && has_room(load + sum - weight, weight, s.cap);
        const unsigned refused = ~__ballot_sync(kAllLanes, fits);
        const int served = refused == 0 ? 32 : __ffs(static_cast<int>(refused)) - 1;
        if (lane < served) s.verdicts[place] = kGranted;
        if (served < 32) break;
        load += __shfl_sync(kAllLanes, sum, 31);
      }
    }
  }
}

int launch_contest(const LabelSweep& s, int64_t first, int64_t size, void* stream) {
  constexpr int64_t kMax = 1024;  // blocks: few of the places are contested as a rule
  const auto blocks_of = [](int64_t wanted) {
    return static_cast<unsigned>(wanted < kMax ? wanted : kMax);
  };
  sort_tiles<<<blocks_of(ceil_div(size, kTile)), kBlock, 0, as_stream(stream)>>>(s);
  int status = launch_status();
  const unsigned blocks = blocks_of(ceil_div(size, kBlock));
  int32_t* from = s.contested;
  int32_t* to = s.contested + s.queue_capacity();
  for (int64_t run = kTile; status == 0 && run < size; run *= 2) {
    merge_runs<<<blocks, kBlock, 0, as_stream(stream)>>>(s, from, to, run);
    status = launch_status();
    int32_t* const other = from;
    from = to;
    to = other;
  }
  if (status != 0) return status;
  label_serve<<<blocks, kBlock, 0, as_stream(stream)>>>(s, first);
  return launch_status();
}

// Changes labels and loads; who was contested and not served goes without. Several may wake the same vertex, all with the same value.
__global__ void __launch_bounds__(kBlock) label_apply(const LabelSweep s, int64_t first,
                                                      int64_t size) {
  __shared__ bool wakes_many[kBlock];
  __shared__ int moved;
  if (threadIdx.x == 0) moved = 0;
  if (blockIdx.x == 0 && threadIdx.x == 0) s.counts[2] = 0;  // of the round that ends here
  __syncthreads();
  const int64_t place = static_cast<int64_t>(blockIdx.x) * kBlock + threadIdx.x;
  bool many = false;
  if (place < size && s.verdicts[place] != kNone) {
    const int64_t v = first + place;
    const int32_t label = s.wished[place];
    s.arrivals[label] = 0;
    if (s.verdicts[place] == kGranted) {
      const int64_t weight = weight_of(s, v);
      add(s.loads + s.labels[v], -weight);
      add(s.loads + label, weight);
      s.labels[v] = label;
      atomicAdd(&moved, 1);
      many = s.active != nullptr && s.indptr[v + 1] - s.indptr[v] > kShortRow;
      if (s.active != nullptr && !many) {
        for (int64_t e = s.indptr[v]; e < s.indptr[v + 1]; ++e) s.active[s.indices[e]] = 1;
      }
    } else if (s.active != nullptr) {
      s.active[v] = 1;
    }
  }
  wakes_many[threadIdx.x] = many;
  const int any = __syncthreads_or(many);
  if (threadIdx.x == 0 && moved > 0) add(s.counts, moved);
  if (!any) return;
  for (int i = 0; i < kBlock; ++i) {
    if (!wakes_many[i]) continue;
    const int64_t v = first + static_cast<int64_t>(blockIdx.x) * kBlock + i;
    for (int64_t e = s.indptr[v] + threadIdx.x; e < s.indptr[v + 1]; e += kBlock) {
      s.active[s.indices[e]] = 1;
    }
  }
}

}  // namespace

extern "C" {

int dgb_label_sweep(const LabelSweep* args, void* stream) {
  const LabelSweep& s = *args;
  for (int64_t first = 0; first < s.vertices; first += s.block) {
    const int64_t size = s.block < s.vertices - first ? s.block : s.vertices - first;
    const auto blocks = static_cast<unsigned>(ceil_div(size, kBlock));
    for (uint32_t round = 0; round < s.rounds; ++round) {
      label_wish<<<blocks, kBlock, 0, as_stream(stream)>>>(s, first, size, round);
      int status = launch_status();
      if (status == 0) status = for_each(size, LabelAdmit{s}, stream);
      if (status != 0) return status;
      status = launch_contest(s, first, size, stream);
      if (status != 0) return status;
      label_apply<<<blocks, kBlock, 0, as_stream(stream)>>>(s, first, size);
      status = launch_status();
      if (status != 0) return status;
    }
  }
  return 0;
}

}  // extern "C"

}  // namespace dgbench
