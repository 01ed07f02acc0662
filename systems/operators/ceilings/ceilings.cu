// Kernels that do one thing each, for ceilings/calls.py: plain C launchers, driven by ctypes.
//
//   nvcc -O3 -std=c++17 -shared -Xcompiler -fPIC -arch=sm_90 -o ceilings.so ceilings.cu
//
// Loads go past the first-level cache (.cg) and are volatile assembly, so that none is dropped,
// merged with another or moved out of its loop; what was loaded is added up and stored, and the
// caller compares the sums. Every launcher returns the error of its launch.
#include <cuda_runtime.h>

#include <cstdint>

namespace {

constexpr int kThreads = 256;
constexpr int kInFlight = 4;   // requests that a thread makes before it uses the first
constexpr int kChains = 16;    // of multiplications that do not wait for each other
constexpr int kTiles = 8;      // of accumulators, likewise
constexpr int kShared = 1024;  // words of the chase through shared memory

__device__ inline float4 load(const float4* from) {
#ifdef __CUDA_ARCH__
  float4 got;
  asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(got.x), "=f"(got.y), "=f"(got.z), "=f"(got.w)
               : "l"(from));
  return got;
#else
  return *from;
#endif
}

__device__ inline uint32_t load(const uint32_t* from) {
#ifdef __CUDA_ARCH__
  uint32_t got;
  asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(got) : "l"(from));
  return got;
#else
  return *from;
#endif
}

__device__ inline float sum(float4 of) { return (of.x + of.y) + (of.z + of.w); }

// A row in [0, rows) that looks drawn, the same for all lanes of a group.
__device__ inline uint64_t place(uint32_t group, uint32_t number, uint32_t seed, uint64_t rows) {
  uint32_t bits = group * 0x9e3779b9u + number * 0x85ebca6bu + seed;
  bits = (bits ^ bits >> 16) * 0x7feb352du;
  bits = (bits ^ bits >> 15) * 0x846ca68bu;
  bits ^= bits >> 16;
  return bits * rows >> 32;  // rows < 2^32
}

__device__ inline uint32_t here() { return blockIdx.x * kThreads + threadIdx.x; }

// Every thread reads `requests` words of a buffer, all threads one after the other.
__global__ void read_over(const float4* data, uint64_t count, int requests, float* sums) {
  const uint64_t step = static_cast<uint64_t>(gridDim.x) * kThreads % count;
  uint64_t at = here() % count;
  float total = 0.0f;
  for (int k = 0; k < requests; k += kInFlight) {
    float4 got[kInFlight];
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      got[u] = load(data + at);
      at += step;
      if (at >= count) at -= count;
    }
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) total += sum(got[u]);
  }
  sums[here()] = total;
}

// LANES threads read a row of 16 LANES bytes together, `requests` rows one after the other.
template <int LANES>
__global__ void gather(const float4* table, uint64_t rows, int requests, uint32_t seed,
                       float* sums) {
  const uint32_t group = here() / LANES, lane = here() % LANES;
  float total = 0.0f;
  for (int k = 0; k < requests; k += kInFlight) {
    float4 got[kInFlight];
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      got[u] = load(table + place(group, k + u, seed, rows) * LANES + lane);
    }
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) total += sum(got[u]);
  }
  sums[here()] = total;
}

// Every thread adds ones to rows of four floats: one vector reduction each, from sm_90 on.
__global__ void reduce_vectors(float4* table, uint64_t rows, int requests, uint32_t seed) {
  for (int k = 0; k < requests; ++k) {
    float4* to = table + place(here(), k, seed, rows);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    atomicAdd(to, make_float4(1.0f, 1.0f, 1.0f, 1.0f));
#elif !defined(__CUDA_ARCH__)
    for (int i = 0; i < 4; ++i) reinterpret_cast<float*>(to)[i] += 1.0f;
#endif
  }
}

// LANES threads add one each to the first LANES words of a row of four floats.
template <int LANES>
__global__ void reduce_words(float* table, uint64_t rows, int requests, uint32_t seed) {
  const uint32_t group = here() / LANES, lane = here() % LANES;
  for (int k = 0; k < requests; ++k) {
    atomicAdd(table + place(group, k, seed, rows) * 4 + lane, 1.0f);
  }
}

// One thread follows `next`, whose entries are `stride` words apart, from where it stopped before.
// state: [0] where it is, [1] clocks that the last chase took.
__global__ void chase(const uint32_t* next, uint32_t stride, uint32_t steps, uint64_t* state) {
  uint32_t at = static_cast<uint32_t>(state[0]);
  const long long begin = clock64();
  for (uint32_t i = 0; i < steps; ++i) at = load(next + static_cast<uint64_t>(at) * stride);
  state[1] = static_cast<uint64_t>(clock64() - begin);
  state[0] = at;
}

// The same through shared memory, whose entries are addresses, so that a step is one load.
__global__ void chase_shared(const uint32_t* next, uint32_t steps, uint64_t* state) {
  __shared__ uint32_t ring[kShared];
#ifdef __CUDA_ARCH__
  const uint32_t base = static_cast<uint32_t>(__cvta_generic_to_shared(ring)), width = 4;
#else
  const uint32_t base = 0, width = 1;
#endif
  for (int i = 0; i < kShared; ++i) ring[i] = base + next[i] * width;
  uint32_t at = base + static_cast<uint32_t>(state[0]) * width;
  const long long begin = clock64();
  for (uint32_t i = 0; i < steps; ++i) {
#ifdef __CUDA_ARCH__
    asm volatile("ld.volatile.shared.u32 %0, [%0];" : "+r"(at));
#else
    at = ring[at];
#endif
  }
  state[1] = static_cast<uint64_t>(clock64() - begin);
  state[0] = (at - base) / width;
}

__global__ void nothing() {}

// rounds x kChains multiplications with addition a thread; x = x factor + term from x = 0.
__global__ void multiply(float factor, float term, int rounds, float* sums) {
  float chain[kChains] = {};
  for (int r = 0; r < rounds; ++r) {
#pragma unroll
    for (int i = 0; i < kChains; ++i) chain[i] = chain[i] * factor + term;
  }
  float total = 0.0f;
#pragma unroll
  for (int i = 0; i < kChains; ++i) total += chain[i];
  sums[here()] = total;
}

// rounds x kTiles products of 16 x 8 by 8 x 8 a warp on the matrix unit, in tf32, all of ones.
__global__ void multiply_tiles(int rounds, float* sums) {
  float tile[kTiles][4] = {};
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  const uint32_t one = __float_as_uint(1.0f);
  for (int r = 0; r < rounds; ++r) {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      asm volatile(
          "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
          "{%0, %1, %2, %3}, {%4, %4, %4, %4}, {%4, %4}, {%0, %1, %2, %3};"
          : "+f"(tile[i][0]), "+f"(tile[i][1]), "+f"(tile[i][2]), "+f"(tile[i][3])
          : "r"(one));
    }
  }
#elif !defined(__CUDA_ARCH__)
  for (auto& words : tile) {
    for (float& word : words) word = 8.0f * static_cast<float>(rounds);
  }
#endif
  float total = 0.0f;
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) total += tile[i][j];
  }
  sums[here()] = total;
}

int launched() { return static_cast<int>(cudaGetLastError()); }

}  // namespace

extern "C" {

int read_over_on(const void* data, uint64_t count, int blocks, int requests, float* sums,
                 void* stream) {
  read_over<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      static_cast<const float4*>(data), count, requests, sums);
  return launched();
}

// width: bytes of a row, 32, 64 or 128.
int gather_on(const void* table, uint64_t rows, int width, int blocks, int requests, uint32_t seed,
              float* sums, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  const auto* from = static_cast<const float4*>(table);
  switch (width) {
    case 32: gather<2><<<blocks, kThreads, 0, on>>>(from, rows, requests, seed, sums); break;
    case 64: gather<4><<<blocks, kThreads, 0, on>>>(from, rows, requests, seed, sums); break;
    case 128: gather<8><<<blocks, kThreads, 0, on>>>(from, rows, requests, seed, sums); break;
    default: return static_cast<int>(cudaErrorInvalidValue);
  }
  return launched();
}

// lanes: 0 for vectors of four floats, else threads that add a word each to a row.
int reduce_on(void* table, uint64_t rows, int lanes, int blocks, int requests, uint32_t seed,
              void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  auto* to = static_cast<float*>(table);
  switch (lanes) {
    case 0:
      reduce_vectors<<<blocks, kThreads, 0, on>>>(static_cast<float4*>(table), rows, requests, seed);
      break;
    case 1: reduce_words<1><<<blocks, kThreads, 0, on>>>(to, rows, requests, seed); break;
    case 4: reduce_words<4><<<blocks, kThreads, 0, on>>>(to, rows, requests, seed); break;
    default: return static_cast<int>(cudaErrorInvalidValue);
  }
  return launched();
}

// stride: words between entries, 0 for the 1024 entries in shared memory.
int chase_on(const uint32_t* next, uint32_t stride, uint32_t steps, uint64_t* state, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  if (stride == 0) {
    chase_shared<<<1, 1, 0, on>>>(next, steps, state);
  } else {
    chase<<<1, 1, 0, on>>>(next, stride, steps, state);
  }
  return launched();
}

int launch_nothing(int count, void* stream) {
  for (int i = 0; i < count; ++i) nothing<<<1, 32, 0, static_cast<cudaStream_t>(stream)>>>();
  return launched();
}

int multiply_on(float factor, float term, int blocks, int rounds, float* sums, void* stream) {
  multiply<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(factor, term, rounds, sums);
  return launched();
}

int multiply_tiles_on(int blocks, int rounds, float* sums, void* stream) {
  multiply_tiles<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(rounds, sums);
  return launched();
}

}  // extern "C"
