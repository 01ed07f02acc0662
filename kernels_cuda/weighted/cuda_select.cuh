// What selections of the k smallest keys share: keys in fours, sums over a block, choosing a digit.
#pragma once

#include <cstring>

#include "common/block_scan.cuh"
#include "weighted/cuda_launchers.h"
#include "weighted/functors.hpp"

namespace dgbench {

inline int multiprocessors() {
  int device = 0, count = 1;
  if (cudaGetDevice(&device) == cudaSuccess) {
    cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  }
  return count;
}

// Digits of a key from the top, below the sign: 11, 10 and 10 bits.
__device__ __forceinline__ int shift_of(int pass) { return pass == 0 ? 20 : pass == 1 ? 10 : 0; }

// Whether a key has the digits of `threshold` that passes before `pass` have found.
__device__ __forceinline__ bool in_reach(uint32_t key, uint32_t threshold, int pass) {
  return key != kNeverTaken && (pass == 0 || (key ^ threshold) >> shift_of(pass - 1) == 0);
}

__device__ __forceinline__ uint32_t digit_of(uint32_t key, int pass) {
  return (key >> shift_of(pass)) & (pass == 0 ? 2047u : 1023u);
}

// Keys of the items 4 quad .. 4 quad + 3 before their weights.
struct ItemKeys {
  float at[4];
};

__device__ __forceinline__ ItemKeys exponentials_of(uint64_t seed, uint64_t stream, uint64_t quad) {
  const Draws block = key_block(seed, stream, quad, false);
  ItemKeys made;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const uint32_t bits = key_word(block, static_cast<uint64_t>(j));
    made.at[j] = is_coarse(bits) ? item_exponential(seed, stream, 4 * quad + j)  // hardly ever
                                 : exponential_of(bits);
  }
  return made;
}

__device__ __forceinline__ uint32_t key_bits(float exponential, float weight) {
  return weight > 0.0f ? float_as_bits(key_of(exponential, weight)) : kNeverTaken;
}

__device__ __forceinline__ uint32_t given_key(int32_t key) {
  return key < 0 ? kNeverTaken : static_cast<uint32_t>(key);
}

// Four neighbours in one access where they lie so.
template <class T>
__device__ __forceinline__ void load_quad(const T* from, int64_t first, int64_t begin, int64_t end,
                                          T outside, T (&to)[4]) {
  const bool whole = reinterpret_cast<std::uintptr_t>(from) % 16 == 0;
  if (whole && first >= begin && first + 4 <= end) {
    const uint4 four = __ldg(reinterpret_cast<const uint4*>(from + first));
    memcpy(to, &four, sizeof four);
    return;
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    to[j] = first + j >= begin && first + j < end ? from[first + j] : outside;
  }
}

// Keys of the items 4 quad .. 4 quad + 3; of those outside [begin, end) kNeverTaken.
__device__ __forceinline__ void given_quad(const int32_t* given, int64_t quad, int64_t begin,
                                           int64_t end, uint32_t (&keys)[4]) {
  int32_t found[4];
  load_quad(given, 4 * quad, begin, end, -1, found);
#pragma unroll
  for (int j = 0; j < 4; ++j) keys[j] = given_key(found[j]);
}

__device__ __forceinline__ void make_quad(const KeySource& source, int64_t quad, int64_t begin,
                                          int64_t end, uint32_t (&keys)[4]) {
  const int64_t first = 4 * quad;
  float weights[4] = {1.0f, 1.0f, 1.0f, 1.0f};
  if (source.weights != nullptr) load_quad(source.weights, first, begin, end, 0.0f, weights);
  const ItemKeys made = exponentials_of(source.seed, source.stream, static_cast<uint64_t>(quad));
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const bool inside = first + j >= begin && first + j < end;
    keys[j] = inside ? key_bits(made.at[j], weights[j]) : kNeverTaken;
  }
}

// Fills up what a set of `wanted` did not have, from place `found` on; called by `lanes` threads.
__device__ __forceinline__ void fill_missing(const SelectSpace& space, int64_t* chosen,
                                             int64_t found, int64_t wanted, int lane, int lanes) {
  for (int64_t at = found + lane; at < wanted; at += lanes) chosen[at] = -1;
  if (lane == 0 && found < wanted) {
    atomicAdd(space.counters + kMissing, static_cast<unsigned long long>(wanted - found));
  }
}

// Finds the digit in which the left-th key lies, by a whole block; `bins` of all keys in reach. The
// state holds what comes before, in memory that no other block writes meanwhile.
__device__ inline void choose_digit(const uint32_t* bins, int pass, SelectState* state,
                                    uint32_t* warp_sums) {
  constexpr int kEach = kBins / kBlock;
  const uint32_t left = fresh(&state->left), missing = fresh(&state->missing);
  uint32_t mine[kEach], sum = 0, total;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    mine[i] = fresh(bins + kEach * threadIdx.x + i);
    sum += mine[i];
  }
  uint32_t before =
      block_scan(sum, warp_sums, total);  // its barriers also part reading from writing
  if (missing > 0 || left > total) {
    // All that have weight are taken: every key lies below the threshold.
    if (threadIdx.x == 0) {
      if (missing == 0) state->missing = left - total;
      state->left = 0;
      state->threshold = kNeverTaken;
    }
  } else if (before < left && left <= before + sum) {
    uint32_t digit = kEach * threadIdx.x;
    bool found = false;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      found = found || before + mine[i] >= left;
      before += found ? 0 : mine[i];
      digit += found ? 0 : 1;
    }
    state->left = left - before;
    state->threshold |= digit << shift_of(pass);
  }
}

}  // namespace dgbench
