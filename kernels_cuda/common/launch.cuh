// Grid sizes, the device form of for_each, and vector loads.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace dgbench {

constexpr int kBlock = 256;

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

inline cudaStream_t as_stream(void* stream) { return static_cast<cudaStream_t>(stream); }

// The error of the launch just made, and of none before it that was already reported.
inline int launch_status() { return static_cast<int>(cudaGetLastError()); }

template <class Functor>
__global__ void __launch_bounds__(kBlock) for_each_kernel(int64_t n, Functor functor) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kBlock;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kBlock + threadIdx.x; i < n; i += step) {
    functor(i);
  }
}

// functor(0) .. functor(n - 1) in any order; the host form is in common/for_each.hpp.
template <class Functor>
int for_each(int64_t n, const Functor& functor, void* stream) {
  if (n <= 0) return 0;
  constexpr int64_t kMaxBlocks = 1 << 20;  // beyond, a thread takes several
  const int64_t blocks = ceil_div(n, kBlock);
  for_each_kernel<<<static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks), kBlock, 0,
                    as_stream(stream)>>>(n, functor);
  return launch_status();
}

inline bool aligned(const void* pointer, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}

// Number of the multiprocessor that runs this thread.
__device__ __forceinline__ int64_t multiprocessor() {
#if defined(DGBENCH_EMULATED_DEVICE)
  return blockIdx.x % emulated::setting("EMULATED_PROCESSORS", 1);
#else
  unsigned number;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(number));
  return number;
#endif
}

template <class T>
__device__ __forceinline__ T fresh(const T* from) {  // past what this multiprocessor has cached
  return *static_cast<const volatile T*>(from);
}

// The clock of the multiprocessor that runs this thread, in its cycles.
__device__ __forceinline__ int64_t cycles() {
#if defined(DGBENCH_EMULATED_DEVICE)
  return ++emulated::ticks;
#else
  long long now;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(now));
  return now;
#endif
}

// VEC neighbouring floats through the read-only path; the address is a multiple of their size.
template <int VEC>
__device__ __forceinline__ void load_floats(const float* from, float (&to)[VEC]) {
  if constexpr (VEC == 4) {
    const float4 v = __ldg(reinterpret_cast<const float4*>(from));
    to[0] = v.x;
    to[1] = v.y;
    to[2] = v.z;
    to[3] = v.w;
  } else if constexpr (VEC == 2) {
    const float2 v = __ldg(reinterpret_cast<const float2*>(from));
    to[0] = v.x;
    to[1] = v.y;
  } else {
    to[0] = __ldg(from);
  }
}

template <int VEC>
__device__ __forceinline__ void store_floats(float* to, const float (&from)[VEC]) {
  if constexpr (VEC == 4) {
    *reinterpret_cast<float4*>(to) = make_float4(from[0], from[1], from[2], from[3]);
  } else if constexpr (VEC == 2) {
    *reinterpret_cast<float2*>(to) = make_float2(from[0], from[1]);
  } else {
    *to = from[0];
  }
}

// Adds VEC neighbouring floats; one instruction where the device has vector atomics (sm_90).
template <int VEC>
__device__ __forceinline__ void add_floats(float* to, const float (&from)[VEC]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if constexpr (VEC == 4) {
    atomicAdd(reinterpret_cast<float4*>(to), make_float4(from[0], from[1], from[2], from[3]));
  } else if constexpr (VEC == 2) {
    atomicAdd(reinterpret_cast<float2*>(to), make_float2(from[0], from[1]));
  } else {
    atomicAdd(to, from[0]);
  }
#else
#pragma unroll
  for (int e = 0; e < VEC; ++e) atomicAdd(to + e, from[e]);
#endif
}

}  // namespace dgbench
