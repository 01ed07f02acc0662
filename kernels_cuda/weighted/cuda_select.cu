// The k smallest keys of large sets, which many blocks share: three digits of a key are counted, from
// the top, then one pass collects in order. The first pass makes the keys and stores them.
//
// A block counts a run of tiles and adds its counts up once for each set in it; whoever finishes a
// set's last tile chooses its digit. The collecting pass hands on, from tile to tile, how many items
// before it are taken (decoupled look-back); tiles are begun in order, so those waited for do run.
//
// Grids fill the device, and how many sets and tiles there are they read from counters: nothing is
// asked of the host, so a CUDA graph can hold it all.
//
// k of n from one set: 6 launches with the one that clears the counters and no wait of the host (before:
// 20 and two). One more looks at the weights where errors are to be told; torch's operations for that
// were 15 and most of a draw's time. 20 n + 8 k bytes as before, 24 an item for k = n / 2: weights read,
// keys written and read three times, items written. Predicted at 4.2 TB/s: n = 1e8 0.57 ms by its bytes,
// 0.72 as a key's arithmetic (about 110 instructions, 0.34 ms in all) takes longer than the first pass's
// bytes (0.19); n = 1e6 6 us by its bytes, 15 to 20 because of its launches.
#include <initializer_list>
#include <type_traits>

#include "weighted/cuda_select.cuh"

namespace dgbench {
namespace {

constexpr int kRounds = kTileQuads / kBlock;  // quads of a thread in a tile
constexpr int kCount = 31;                    // bits of a count in `progress`
constexpr uint64_t kOwn = 1ull << 62;         // its counts are of this tile alone
constexpr uint64_t kAllBefore = 2ull << 62;   // .. of it and those before it

// Blocks that a multiprocessor holds at once: a grid is one wave of them.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr int kMakers = 4, kReaders = 4;
#else
constexpr int kMakers = 8, kReaders = 5;
#endif

__device__ __forceinline__ int64_t tiles_of(const SelectSpace& space) {
  return static_cast<uint32_t>(space.counters[kLarge]);
}

__device__ __forceinline__ SelectState* state_of(const SelectSpace& space, int64_t tile) {
  auto low = int64_t{0}, high = static_cast<int64_t>(space.counters[kLarge] >> 32);
  while (high - low > 1) {  // the last whose first tile is not behind
    const int64_t middle = low + (high - low) / 2;
    if (space.large[middle].first <= tile) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return space.large + low;
}

// The quads of a large set, by their places in it.
struct SetQuads {
  int64_t begin, end;  // items
  int64_t first;       // quad
  uint4* keys;         // or null

  __device__ SetQuads(const Sets& sets, const SelectSpace& space, const SelectState* state)
      : begin(sets.begin[state->set]),
        end(sets.end[state->set]),
        first(begin >> 2),
        keys(space.keys == nullptr
                 ? nullptr
                 : reinterpret_cast<uint4*>(space.keys + int64_t{kTileItems} * state->first)) {}

  // The first pass makes keys, unless they are given.
  template <bool MAKE>
  __device__ __forceinline__ void load(const KeySource& source, int64_t place,
                                       uint32_t (&made)[4]) const {
    if (keys == nullptr) return given_quad(source.given, first + place, begin, end, made);
    if constexpr (MAKE) {
      make_quad(source, first + place, begin, end, made);
      keys[place] = make_uint4(made[0], made[1], made[2], made[3]);
    } else {
      const uint4 four = keys[place];
      memcpy(made, &four, sizeof four);
    }
  }
};

template <int PASS>
__global__ void __launch_bounds__(kBlock, PASS == 0 ? kMakers : kReaders)
    count_digits(const Sets sets, const KeySource source, const SelectSpace space) {
  constexpr int kAhead = PASS == 0 ? 1 : kRounds;  // rounds whose keys are on their way together
  __shared__ uint32_t bins[kBins];
  __shared__ uint32_t warp_sums[kBlockWarps];
  __shared__ bool is_last;
  for (int b = threadIdx.x; b < kBins; b += kBlock) bins[b] = 0;
  __syncthreads();
  const int64_t tiles = tiles_of(space);
  int64_t tile = tiles * blockIdx.x / gridDim.x;
  const int64_t stop = tiles * (static_cast<int64_t>(blockIdx.x) + 1) / gridDim.x;
  while (tile < stop) {
    SelectState* const state = state_of(space, tile);
    const int64_t until = state->stop < stop ? state->stop : stop;
    const uint32_t threshold = fresh(&state->threshold);
    const auto counted = static_cast<uint32_t>(until - tile);
    const SetQuads quads(sets, space, state);
    for (; tile < until; ++tile) {
      if (PASS == 0 && threadIdx.x == 0) space.progress[tile] = 0;
      const int64_t place = (tile - state->first) * kTileQuads + threadIdx.x;
#pragma unroll 1
      for (int round = 0; round < kRounds; round += kAhead) {
        uint32_t keys[kAhead][4];
#pragma unroll
        for (int a = 0; a < kAhead; ++a) {
          quads.load<PASS == 0>(source, place + (round + a) * kBlock, keys[a]);
        }
#pragma unroll
        for (int a = 0; a < kAhead; ++a) {
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            const uint32_t key = keys[a][j];
            if (in_reach(key, threshold, PASS)) atomicAdd(bins + digit_of(key, PASS), 1u);
          }
        }
      }
    }
    __syncthreads();
    uint32_t* const total =
        space.histograms + ((state - space.large) * kPasses + PASS) * kBins;
    for (int b = threadIdx.x; b < kBins; b += kBlock) {
      if (bins[b] != 0) atomicAdd(total + b, bins[b]);
      bins[b] = 0;
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      const uint32_t before = atomicAdd(state->counted + PASS, counted);
      is_last = before + counted == state->stop - state->first;
      __threadfence();
    }
    __syncthreads();
    if (is_last) {
      choose_digit(total, PASS, state, warp_sums);
      if (PASS == kPasses - 1) {
        __syncthreads();
        const int64_t wanted = sets.out[state->set + 1] - sets.out[state->set];
        fill_missing(space, sets.chosen + sets.out[state->set], wanted - fresh(&state->missing),
                     wanted, static_cast<int>(threadIdx.x), kBlock);
      }
    }
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

__global__ void __launch_bounds__(kBlock, kReaders)
    collect(const Sets sets, const KeySource source, const SelectSpace space) {
  __shared__ uint32_t run[kRounds * kBlockWarps];  // exclusive sums: of 32 quads each, in order
  __shared__ uint16_t taken[kTileItems];           // items of the tile, side by side
  __shared__ uint64_t before_tile;
  __shared__ uint32_t of_tile;
  __shared__ int64_t begun;
  const int lane = static_cast<int>(threadIdx.x) & 31, warp = static_cast<int>(threadIdx.x) >> 5;
  const int64_t tiles = tiles_of(space);
  const auto next_tile = [&] {
    return static_cast<int64_t>(atomicAdd(space.counters + kTicket, 1ull));
  };
  if (threadIdx.x == 0) begun = next_tile();
  for (;;) {
    __syncthreads();
    const int64_t tile = begun;
    if (tile >= tiles) return;
    // Its latency passes with this tile's work; none waits for tiles behind its own.
    const int64_t next = threadIdx.x == 0 ? next_tile() : 0;
    const SelectState* const state = state_of(space, tile);
    const uint32_t threshold = state->threshold, left = state->left;
    const SetQuads quads(sets, space, state);
    const int64_t first_place = (tile - state->first) * kTileQuads;
    uint32_t keys[kRounds][4], place[kRounds];  // less in the upper half, equal in the lower
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      quads.load<false>(source, first_place + round * kBlock + threadIdx.x, keys[round]);
    }
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
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
          look_back(space.progress, state->first, tile, pack(all >> 16, all & 0xffffu));
      if (lane == 0) {
        before_tile = found;
        of_tile = all;
      }
    }
    __syncthreads();
    // Among equal keys the first `left` of the set are taken.
    const uint32_t less_before = less_of(before_tile), equal_before = equal_of(before_tile);
    const auto place_of = [&](uint32_t less, uint32_t equal) {
      return less_before + less + (equal_before + equal < left ? equal_before + equal : left);
    };
    const uint32_t base = place_of(0, 0), stop = place_of(of_tile >> 16, of_tile & 0xffffu);
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      const uint32_t at = run[round * kBlockWarps + warp] + place[round];
      uint32_t less = at >> 16, equal = at & 0xffffu;
      const int item = 4 * (round * kBlock + static_cast<int>(threadIdx.x));
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const uint32_t key = keys[round][j];
        const bool is_less = key < threshold;
        const bool is_equal = key == threshold && key != kNeverTaken;
        if (is_less || (is_equal && equal_before + equal < left)) {
          taken[place_of(less, equal) - base] = static_cast<uint16_t>(item + j);
        }
        less += is_less;
        equal += is_equal;
      }
    }
    __syncthreads();
    int64_t* const chosen = sets.chosen + sets.out[state->set] + base;
    for (uint32_t i = threadIdx.x; i < stop - base; i += kBlock) {
      chosen[i] = 4 * (quads.first + first_place) + taken[i];
    }
    if (threadIdx.x == 0) begun = next;
  }
}

struct MakeKeys {
  KeySource source;
  int64_t n;
  uint32_t* keys;
  __device__ void operator()(int64_t quad) const {
    uint32_t made[4];
    make_quad(source, quad, 0, n, made);
    for (int j = 0; j < 4 && 4 * quad + j < n; ++j) keys[4 * quad + j] = made[j];
  }
};

template <class W>
struct Examine {
  const W* weights;
  int64_t n;
  Examined into;
  __device__ void operator()(int64_t i) const {
    const W weight = weights[i];
    const auto value = static_cast<double>(weight);
    // Whoever marks writes the same.
    if (!(value >= 0.0 && value <= 1.7976931348623157e308)) into.counters[kImproper] = 1;
    if constexpr (!std::is_integral_v<W>) {
      if (value > 0.0 && (value < kMinWeight || value > kMaxWeight)) into.counters[kOutside] = 1;
    }
    if (into.plain != nullptr) into.plain[i] = static_cast<float>(weight);
    if (into.set != nullptr && i == 0) {
      into.set[0] = 0;
      into.set[1] = n;
      into.set[2] = 0;
      into.set[3] = into.wanted;
    }
  }
};

template <class Kernel>
int launch_tiles(Kernel kernel, int resident, const Sets& sets, const KeySource& source,
                 const SelectSpace& space, void* stream) {
  const int64_t most = resident * static_cast<int64_t>(multiprocessors());
  const auto blocks = static_cast<unsigned>(space.tile_most < most ? space.tile_most : most);
  kernel<<<blocks, kBlock, 0, as_stream(stream)>>>(sets, source, space);
  return launch_status();
}

}  // namespace

extern "C" {

int dgb_select_large(const Sets* sets, const KeySource* source, const SelectSpace* space,
                     void* stream) {
  if (space->tile_most == 0) return 0;
  int status = launch_tiles(count_digits<0>, kMakers, *sets, *source, *space, stream);
  for (const auto pass : {count_digits<1>, count_digits<2>, collect}) {
    if (status == 0) status = launch_tiles(pass, kReaders, *sets, *source, *space, stream);
  }
  return status;
}

int dgb_examine_float(const float* weights, int64_t n, const Examined* into, void* stream) {
  return for_each(n, Examine<float>{weights, n, *into}, stream);
}
int dgb_examine_double(const double* weights, int64_t n, const Examined* into, void* stream) {
  return for_each(n, Examine<double>{weights, n, *into}, stream);
}
int dgb_examine_int(const int64_t* weights, int64_t n, const Examined* into, void* stream) {
  return for_each(n, Examine<int64_t>{weights, n, *into}, stream);
}

int dgb_make_keys(const KeySource* source, int64_t n, uint32_t* keys, void* stream) {
  return for_each(ceil_div(n, 4), MakeKeys{*source, n, keys}, stream);
}

}  // extern "C"

}  // namespace dgbench
