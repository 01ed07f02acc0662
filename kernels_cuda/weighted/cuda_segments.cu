// The k smallest keys of many sets at once: a warp serves a set of up to kShortSet items, a block of
// threads one of up to kMediumSet, whose keys it holds in shared memory. Larger sets are given tiles,
// which weighted/cuda_select.cu goes through. Which set is of which kind the device alone knows.
#include "weighted/cuda_select.cuh"

namespace dgbench {
namespace {

constexpr unsigned kMaxBlocks = 1 << 16;

__device__ __forceinline__ uint32_t key_of_item(const KeySource& source, int64_t item) {
  if (source.given != nullptr) return given_key(source.given[item]);
  const float weight = source.weights == nullptr ? 1.0f : source.weights[item];
  return key_bits(item_exponential(source.seed, source.stream, static_cast<uint64_t>(item)), weight);
}

// Gives a set of `n` items tiles, a state and empty histograms; by a warp. False where bounds on the
// host were too low.
__device__ __forceinline__ bool plan_large(const SelectSpace& space, int64_t s, int64_t begin,
                                           int64_t end, int64_t wanted, int lane) {
  const int64_t quads = ((end + 3) >> 2) - (begin >> 2);
  const auto tiles = static_cast<unsigned long long>((quads + kTileQuads - 1) / kTileQuads);
  const unsigned long long own = 1ull << 32 | tiles;
  unsigned long long before = 0;
  // Slots and tiles rise together, in the order of arrival; nothing depends on it.
  if (lane == 0) before = atomicAdd(space.counters + kPlanned, own);
  before = __shfl_sync(kAllLanes, before, 0);
  const auto slot = static_cast<int64_t>(before >> 32);
  const auto first = static_cast<uint32_t>(before);
  if (slot >= space.large_most || static_cast<int64_t>(first + tiles) > space.tile_most) {
    return false;
  }
  if (lane == 0) {
    space.large[slot] = {0, static_cast<uint32_t>(wanted), 0, {0, 0, 0}, first,
                         static_cast<uint32_t>(first + tiles), s};
    atomicAdd(space.counters + kLarge, own);
  }
  auto* const bins = reinterpret_cast<uint4*>(space.histograms + slot * kPasses * kBins);
  for (int b = lane; b < kPasses * kBins / 4; b += 32) bins[b] = make_uint4(0, 0, 0, 0);
  return true;
}

// A lane has one key and counts those before it.
__global__ void __launch_bounds__(kBlock) select_short(const Sets sets, const KeySource source,
                                                       const SelectSpace space) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const int64_t warps = static_cast<int64_t>(gridDim.x) * kBlockWarps;
  int64_t s = static_cast<int64_t>(blockIdx.x) * kBlockWarps + (threadIdx.x >> 5);
  for (; s < sets.count; s += warps) {
    const int64_t wanted = sets.out[s + 1] - sets.out[s];
    if (wanted == 0) continue;
    const int64_t begin = sets.begin[s];
    const int64_t n = sets.end[s] - begin;
    int64_t* const chosen = sets.chosen + sets.out[s];
    if (n > space.medium || n > space.largest) {
      if (!plan_large(space, s, begin, sets.end[s], wanted, lane)) {
        fill_missing(space, chosen, 0, wanted, lane, 32);
      }
      continue;
    }
    if (n > kShortSet) {
      if (lane == 0) space.list[atomicAdd(space.counters + kMedium, 1ull)] = static_cast<int32_t>(s);
      continue;
    }
    const uint32_t key = lane < n ? key_of_item(source, begin + lane) : kNeverTaken;
    int rank = 0;
    for (int j = 0; j < n; ++j) {
      const uint32_t other = __shfl_sync(kAllLanes, key, j);
      rank += other < key || (other == key && j < lane) ? 1 : 0;
    }
    const bool taken = key != kNeverTaken && rank < wanted;
    const unsigned votes = __ballot_sync(kAllLanes, taken);
    if (taken) chosen[__popc(votes & ((1u << lane) - 1))] = begin + lane;
    fill_missing(space, chosen, __popc(votes), wanted, lane, 32);
  }
}

__global__ void __launch_bounds__(kBlock) select_medium(const Sets sets, const KeySource source,
                                                        const SelectSpace space) {
  __shared__ uint32_t keys[kMediumSet + 8];  // whole quads, of which the ends may be outside
  __shared__ uint32_t bins[kBins];
  __shared__ uint32_t warp_sums[kBlockWarps];
  __shared__ SelectState state;
  const auto count = static_cast<int64_t>(space.counters[kMedium]);
  for (int64_t which = blockIdx.x; which < count; which += gridDim.x) {
    const int64_t s = space.list[which];
    const int64_t begin = sets.begin[s], end = sets.end[s];
    const int64_t wanted = sets.out[s + 1] - sets.out[s];
    const int64_t first_quad = begin >> 2;
    const int quads = static_cast<int>(((end + 3) >> 2) - first_quad);
    for (int q = threadIdx.x; q < quads; q += kBlock) {
      uint32_t made[4];
      if (source.given != nullptr) {
        given_quad(source.given, first_quad + q, begin, end, made);
      } else {
        make_quad(source, first_quad + q, begin, end, made);
      }
      for (int j = 0; j < 4; ++j) keys[4 * q + j] = made[j];
    }
    if (threadIdx.x == 0) {
      state.threshold = 0;
      state.missing = 0;
      state.left = static_cast<uint32_t>(wanted);
    }
    for (int pass = 0; pass < kPasses; ++pass) {
      for (int b = threadIdx.x; b < kBins; b += kBlock) bins[b] = 0;
      __syncthreads();
      const uint32_t threshold = fresh(&state.threshold);
      for (int i = threadIdx.x; i < 4 * quads; i += kBlock) {
        const uint32_t key = keys[i];
        if (in_reach(key, threshold, pass)) atomicAdd(bins + digit_of(key, pass), 1u);
      }
      __syncthreads();
      choose_digit(bins, pass, &state, warp_sums);
      __syncthreads();
    }
    // A thread has neighbouring items, an odd number so that banks of shared memory do not clash.
    const uint32_t threshold = fresh(&state.threshold), left = fresh(&state.left);
    const int each = ((4 * quads + kBlock - 1) / kBlock) | 1;
    const int from = each * static_cast<int>(threadIdx.x);
    const int to = from + each < 4 * quads ? from + each : 4 * quads;
    uint32_t mine = 0, all;
    for (int i = from; i < to; ++i) {
      mine += keys[i] < threshold ? 1u << 16 : 0u;
      mine += keys[i] == threshold && keys[i] != kNeverTaken ? 1u : 0u;
    }
    const uint32_t before = block_scan(mine, warp_sums, all);
    uint32_t less = before >> 16, equal = before & 0xffffu;
    int64_t* const chosen = sets.chosen + sets.out[s];
    for (int i = from; i < to; ++i) {
      const bool is_less = keys[i] < threshold;
      const bool is_equal = keys[i] == threshold && keys[i] != kNeverTaken;
      if (is_less || (is_equal && equal < left)) {
        chosen[less + (equal < left ? equal : left)] = 4 * first_quad + i;
      }
      less += is_less;
      equal += is_equal;
    }
    const int64_t missing = fresh(&state.missing);
    fill_missing(space, chosen, wanted - missing, wanted, static_cast<int>(threadIdx.x), kBlock);
    __syncthreads();
  }
}

}  // namespace

extern "C" {

int dgb_select_small(const Sets* sets, const KeySource* source, const SelectSpace* space,
                     void* stream) {
  if (sets->count == 0) return 0;
  const int64_t wanted = ceil_div(sets->count, kBlockWarps);
  const auto blocks = static_cast<unsigned>(wanted < kMaxBlocks ? wanted : kMaxBlocks);
  select_short<<<blocks, kBlock, 0, as_stream(stream)>>>(*sets, *source, *space);
  const int status = launch_status();
  if (status != 0 || space->largest <= kShortSet || space->medium <= kShortSet) return status;
  // How many are listed is known on the device alone: a grid that fills it takes them in turns.
  const int64_t most = 8 * static_cast<int64_t>(multiprocessors());
  const auto some = static_cast<unsigned>(sets->count < most ? sets->count : most);
  select_medium<<<some, kBlock, 0, as_stream(stream)>>>(*sets, *source, *space);
  return launch_status();
}

}  // extern "C"

}  // namespace dgbench
