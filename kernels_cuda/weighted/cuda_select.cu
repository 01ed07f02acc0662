// The k smallest keys of large sets, which many blocks share: three digits of a key are counted, from
// the top, then one pass collects in order. Keys are stored by the first pass or made anew in each.
//
// A block counts a run of tiles and adds its counts up once for each set in it; whoever finishes a
// set's last tile chooses its digit. The collecting pass hands on, from tile to tile, how many items
// before it are taken (decoupled look-back); tiles are begun in order, so those waited for do run.
#include "weighted/cuda_select.cuh"

namespace dgbench {
namespace {

constexpr int kRounds = kTileQuads / kBlock;  // quads of a thread in a tile
constexpr int kCount = 31;                    // bits of a count in `progress`
constexpr uint64_t kOwn = 1ull << 62;         // its counts are of this tile alone
constexpr uint64_t kAllBefore = 2ull << 62;   // .. of it and those before it

__device__ __forceinline__ int64_t set_of(const LargeSets& large, int64_t tile) {
  int64_t low = 0, high = large.count;  // the last whose first tile is not behind
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    if (large.tile_of[middle] <= tile) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// What a tile has to do with its set.
struct TileView {
  int64_t begin, end;   // items of the set
  int64_t first_quad;   // of the tile
  uint32_t* keys;       // of the tile, or null

  __device__ TileView(const Sets& sets, const LargeSets& large, int64_t s, int64_t tile)
      : begin(sets.begin[large.ids[s]]),
        end(sets.end[large.ids[s]]),
        first_quad((begin >> 2) + (tile - large.tile_of[s]) * kTileQuads),
        keys(large.keys == nullptr ? nullptr : large.keys + tile * kTileItems) {}

  // Keys of quad `place` of the tile; the first pass makes them.
  template <bool MAKE>
  __device__ __forceinline__ void load(const KeySource& source, int place,
                                       uint32_t (&made)[4]) const {
    if (!MAKE && keys != nullptr) {
      const uint4 four = reinterpret_cast<const uint4*>(keys)[place];
      made[0] = four.x;
      made[1] = four.y;
      made[2] = four.z;
      made[3] = four.w;
      return;
    }
    keys_of_quad(source, first_quad + place, begin, end, made);
    if (MAKE && keys != nullptr) {
      reinterpret_cast<uint4*>(keys)[place] = make_uint4(made[0], made[1], made[2], made[3]);
    }
  }
};

template <int PASS>
__global__ void __launch_bounds__(kBlock) count_digits(const Sets sets, const LargeSets large,
                                                       const KeySource source) {
  __shared__ uint32_t bins[kBins];
  __shared__ uint32_t warp_sums[kBlockWarps];
  __shared__ bool is_last;
  for (int b = threadIdx.x; b < kBins; b += kBlock) bins[b] = 0;
  __syncthreads();
  int64_t tile = large.tiles * blockIdx.x / gridDim.x;
  const int64_t stop = large.tiles * (static_cast<int64_t>(blockIdx.x) + 1) / gridDim.x;
  while (tile < stop) {
    const int64_t s = set_of(large, tile);
    const int64_t own_first = large.tile_of[s], own_stop = large.tile_of[s + 1];
    const int64_t until = own_stop < stop ? own_stop : stop;
    SelectState* const state = large.state + s;
    const uint32_t threshold = fresh(&state->threshold);
    const auto counted = static_cast<uint32_t>(until - tile);
    for (; tile < until; ++tile) {
      const TileView view(sets, large, s, tile);
      for (int round = 0; round < kRounds; ++round) {
        uint32_t keys[4];
        view.load<PASS == 0>(source, round * kBlock + static_cast<int>(threadIdx.x), keys);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          if (in_reach(keys[j], threshold, PASS)) atomicAdd(bins + digit_of(keys[j], PASS), 1u);
        }
      }
    }
    __syncthreads();
    uint32_t* const total = large.histograms + (s * kPasses + PASS) * kBins;
    for (int b = threadIdx.x; b < kBins; b += kBlock) {
      if (bins[b] != 0) atomicAdd(total + b, bins[b]);
      bins[b] = 0;
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      const uint32_t before = atomicAdd(state->tiles + PASS, counted);
      is_last = before + counted == static_cast<uint32_t>(own_stop - own_first);
      if (is_last && PASS == 0) {
        const int64_t id = large.ids[s];
        state->left = static_cast<uint32_t>(sets.out[id + 1] - sets.out[id]);
      }
      __threadfence();
    }
    __syncthreads();
    if (is_last) choose_digit(total, PASS, state, warp_sums);
    __syncthreads();
  }
}

__device__ __forceinline__ uint64_t pack(uint32_t less, uint32_t equal) {
  return static_cast<uint64_t>(less) << kCount | equal;
}
__device__ __forceinline__ uint32_t less_of(uint64_t packed) {
  return static_cast<uint32_t>(packed >> kCount) & 0x7fffffffu;
}
__device__ __forceinline__ uint32_t equal_of(uint64_t packed) {
  return static_cast<uint32_t>(packed) & 0x7fffffffu;
}

// What the tiles [first, tile) of a set take, by the first warp; publishes what `tile` does.
__device__ uint64_t look_back(uint64_t* progress, int64_t first, int64_t tile, uint64_t own) {
  const int lane = static_cast<int>(threadIdx.x);
  uint64_t before = 0;
  if (tile > first) {
    if (lane == 0) *static_cast<volatile uint64_t*>(progress + tile) = kOwn | own;
    for (int64_t nearest = tile - 1;;) {
      const int64_t at = nearest - lane;
      // What lies before the set counts as known, and as nothing.
      const uint64_t word = at >= first ? fresh(progress + at) : kAllBefore;
      const unsigned known = __ballot_sync(kAllLanes, (word & kAllBefore) != 0);
      const unsigned absent = __ballot_sync(kAllLanes, (word >> 62) == 0);
      const int last = known != 0 ? __ffs(static_cast<int>(known)) - 1 : 31;
      const unsigned needed = last == 31 ? kAllLanes : (1u << (last + 1)) - 1;
      if ((absent & needed) != 0) continue;
      uint64_t sum = lane <= last ? word & (kOwn - 1) : 0;
      for (int distance = 16; distance > 0; distance /= 2) {
        sum += __shfl_xor_sync(kAllLanes, sum, distance);
      }
      before += sum;
      if (known != 0) break;
      nearest -= 32;
    }
  }
  if (lane == 0) *static_cast<volatile uint64_t*>(progress + tile) = kAllBefore | (before + own);
  return before;
}

__global__ void __launch_bounds__(kBlock) collect(const Sets sets, const LargeSets large,
                                                  const KeySource source) {
  __shared__ uint32_t run[kRounds * kBlockWarps];  // exclusive sums: of 32 quads each, in order
  __shared__ uint64_t before_tile;
  __shared__ int64_t taken_tile;
  const int lane = static_cast<int>(threadIdx.x) & 31, warp = static_cast<int>(threadIdx.x) >> 5;
  for (;;) {
    if (threadIdx.x == 0) taken_tile = atomicAdd(large.ticket, 1u);
    __syncthreads();
    const int64_t tile = taken_tile;
    if (tile >= large.tiles) return;
    const int64_t s = set_of(large, tile);
    const uint32_t threshold = large.state[s].threshold;
    const TileView view(sets, large, s, tile);
    uint32_t keys[kRounds][4], place[kRounds];  // less in the upper half, equal in the lower
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      view.load<false>(source, round * kBlock + static_cast<int>(threadIdx.x), keys[round]);
      uint32_t mine = 0;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        mine += keys[round][j] < threshold ? 1u << 16 : 0u;
        mine += keys[round][j] == threshold && keys[round][j] != kNeverTaken ? 1u : 0u;
      }
      const uint32_t inclusive = warp_scan(mine);
      place[round] = inclusive - mine;
      if (lane == 31) run[round * kBlockWarps + warp] = inclusive;
    }
    __syncthreads();
    if (warp == 0) {
      static_assert(kRounds * kBlockWarps == 32, "a warp adds up the runs of a tile");
      const uint32_t mine = run[lane];
      const uint32_t inclusive = warp_scan(mine);
      run[lane] = inclusive - mine;
      const uint32_t all = __shfl_sync(kAllLanes, inclusive, 31);
      // 4096 items fit 16 bits twice.
      const uint64_t found =
          look_back(large.progress, large.tile_of[s], tile, pack(all >> 16, all & 0xffffu));
      if (lane == 0) before_tile = found;
    }
    __syncthreads();
    const int64_t id = large.ids[s];
    const uint32_t left = large.state[s].left;
    int64_t* const chosen = sets.chosen + sets.out[id];
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      const uint32_t at = run[round * kBlockWarps + warp] + place[round];
      uint32_t less = less_of(before_tile) + (at >> 16);
      uint32_t equal = equal_of(before_tile) + (at & 0xffffu);
      const int64_t item = 4 * (view.first_quad + round * kBlock + threadIdx.x);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const uint32_t key = keys[round][j];
        const bool is_less = key < threshold;
        const bool is_equal = key == threshold && key != kNeverTaken;
        if (is_less || (is_equal && equal < left)) {
          chosen[less + (equal < left ? equal : left)] = item + j;
        }
        less += is_less;
        equal += is_equal;
      }
    }
    __syncthreads();
  }
}

// -1 where there was nothing to take.
struct FillMissing {
  Sets sets;
  LargeSets large;
  __device__ void operator()(int64_t s) const {
    const uint32_t missing = large.state[s].missing;
    if (missing == 0) return;
    const int64_t stop = sets.out[large.ids[s] + 1];
    for (int64_t at = stop - missing; at < stop; ++at) sets.chosen[at] = -1;
    atomicAdd(reinterpret_cast<unsigned long long*>(sets.missing),
              static_cast<unsigned long long>(missing));
  }
};

struct MakeKeys {
  KeySource source;
  int64_t n;
  uint32_t* keys;
  __device__ void operator()(int64_t quad) const {
    uint32_t made[4];
    keys_of_quad(source, quad, 0, n, made);
    for (int j = 0; j < 4 && 4 * quad + j < n; ++j) keys[4 * quad + j] = made[j];
  }
};

template <class Kernel>
int launch_tiles(Kernel kernel, const Sets& sets, const LargeSets& large, const KeySource& source,
                 void* stream) {
  const int64_t most = 8 * static_cast<int64_t>(multiprocessors());
  const auto blocks = static_cast<unsigned>(large.tiles < most ? large.tiles : most);
  kernel<<<blocks, kBlock, 0, as_stream(stream)>>>(sets, large, source);
  return launch_status();
}

}  // namespace

extern "C" {

int dgb_select_large(const Sets* sets, const LargeSets* large, const KeySource* source,
                     void* stream) {
  if (large->tiles == 0) return 0;
  int status = launch_tiles(count_digits<0>, *sets, *large, *source, stream);
  if (status == 0) status = launch_tiles(count_digits<1>, *sets, *large, *source, stream);
  if (status == 0) status = launch_tiles(count_digits<2>, *sets, *large, *source, stream);
  if (status == 0) status = launch_tiles(collect, *sets, *large, *source, stream);
  if (status == 0) status = for_each(large->count, FillMissing{*sets, *large}, stream);
  return status;
}

int dgb_make_keys(const KeySource* source, int64_t n, uint32_t* keys, void* stream) {
  return for_each(ceil_div(n, 4), MakeKeys{*source, n, keys}, stream);
}

}  // extern "C"

}  // namespace dgbench
