// Products of small matrices on tensor cores at the accuracy of float32: 3xTF32.
//
// A warp multiplies A [16, 8] by B [8, 8] (mma.sync m16n8k8) with operands of 11 significant bits.
// A float32 is split into such a number and what it leaves, which is another one, and three of the
// four products are added: big * big, small * big, big * small; the fourth is below float32's
// rounding. The tensor core cuts its sums instead of rounding them, so products of big parts begin
// from zero and are added outside (Ootomo and Yokota, 2022). What is infinite becomes NaN.
//
// Lane 4 g + t has of C rows g and g + 8, columns 2 t and 2 t + 1: value 2 (row / 8) + column % 2.
// Slots of A and B are numbered so that column 2 t of A is slot t, 2 t + 1 is slot t + 4: a lane
// then has the same elements of A as of C, and one product's sums are the next one's operand.
//
// On the emulator lanes exchange their values and add the same products in the same groups, which
// shows that every value lies where it should. Below sm_80 there is nothing to launch.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "common/launch.cuh"

namespace dgbench {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define DGBENCH_TENSOR_CORES 1
#else
#define DGBENCH_TENSOR_CORES 0
#endif
// Whether kernels have a body: not where they are compiled for a device without these products.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define DGBENCH_SPLIT_PRODUCTS 0
#else
#define DGBENCH_SPLIT_PRODUCTS 1
#endif

constexpr int kMmaRows = 16;   // of A and C
constexpr int kMmaWidth = 8;   // columns of A, rows of B, columns of B and C
constexpr int kAFloats = kMmaRows * kMmaWidth;
constexpr int kBFloats = kMmaWidth * kMmaWidth;

// Where in a tile a lane's elements lie: so that lanes which write neighbouring rows, columns or k
// meet in few banks of shared memory.
__host__ __device__ inline int slot_of_a(int lane) { return lane ^ lane / 8; }
__host__ __device__ inline int slot_of_b(int lane) { return lane ^ lane / 16; }

// Place of element (row, k) of a matrix in tiles of A: `tiles` of them for every 16 rows.
__host__ __device__ inline int place_in_a(int row, int k, int tiles) {
  const int tile = row / kMmaRows * tiles + k / kMmaWidth;
  const int lane = row % 8 * 4 + k % 8 / 2;
  return tile * kAFloats + slot_of_a(lane) * 4 + row % 16 / 8 * 2 + k % 2;
}

// Place of element (k, column) in one tile of B.
__host__ __device__ inline int place_in_b(int k, int column) {
  return slot_of_b(column * 4 + k / 2) * 2 + k % 2;
}

// The nearest number of 11 significant bits; of two, the one further from zero.
__device__ __forceinline__ float tf32(float x) {
#if DGBENCH_TENSOR_CORES
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return __uint_as_float(bits);
#else
  uint32_t bits;
  memcpy(&bits, &x, 4);
  if ((bits & 0x7f800000u) != 0x7f800000u) bits = (bits + 0x1000u) & 0xffffe000u;
  memcpy(&x, &bits, 4);
  return x;
#endif
}

// N floats of a tile as this lane holds them, in two parts each.
template <int N>
struct Split {
  float big[N], small[N];

  __device__ __forceinline__ void set(int i, float x) {
    big[i] = tf32(x);
    small[i] = tf32(x - big[i]);
  }
};
using SplitA = Split<4>;
using SplitB = Split<2>;

__device__ __forceinline__ SplitA load_a(const float* tile, int lane) {
  const float4 v = reinterpret_cast<const float4*>(tile)[slot_of_a(lane)];
  SplitA a;
  a.set(0, v.x);
  a.set(1, v.y);
  a.set(2, v.z);
  a.set(3, v.w);
  return a;
}

__device__ __forceinline__ SplitB load_b(const float* tile, int lane) {
  const float2 v = reinterpret_cast<const float2*>(tile)[slot_of_b(lane)];
  SplitB b;
  b.set(0, v.x);
  b.set(1, v.y);
  return b;
}

// Sums as this lane holds them become a tile of A.
__device__ __forceinline__ void store_a(float* tile, int lane, const float (&c)[4]) {
  reinterpret_cast<float4*>(tile)[slot_of_a(lane)] = make_float4(c[0], c[1], c[2], c[3]);
}

#if !DGBENCH_TENSOR_CORES
// What a warp's lanes sent each other: of A slots t and t + 4 in rows g, g + 8, then of B.
using Sent = float[6][32];

// Value i of this lane and four products from slot `first` on, exact, then cut to float32.
__device__ inline float cut_sum(float c, const Sent& sent, int lane, int i, int first) {
  double sum = c;
#pragma unroll 1
  for (int t = 0; t < 4; ++t) {
    const double a = sent[i / 2 * 2 + first / 4][lane / 4 * 4 + t];
    const double b = sent[4 + first / 4][(lane % 4 * 2 + i % 2) * 4 + t];
    sum += a * b;
  }
  const float near = static_cast<float>(sum);
  return fabs(static_cast<double>(near)) > fabs(sum) ? nextafterf(near, 0.0f) : near;
}
#endif

// c += A B, on operands that `tf32` has rounded. All lanes of the warp call it.
__device__ __forceinline__ void mma(float (&c)[4], const float (&a)[4], const float (&b)[2]) {
#if DGBENCH_TENSOR_CORES
  // a0 is row g, slot t; a1 row g + 8; a2, a3 the same at slot t + 4
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[1])),
        "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
#else
  __shared__ Sent of_block[kBlock / 32];
  Sent& sent = of_block[threadIdx.x / 32];
  const int lane = threadIdx.x % 32;
  for (int i = 0; i < 4; ++i) sent[i][lane] = a[i];
  for (int i = 0; i < 2; ++i) sent[4 + i][lane] = b[i];
  __syncwarp();
  for (int i = 0; i < 4; ++i) c[i] = cut_sum(cut_sum(c[i], sent, lane, i, 0), sent, lane, i, 4);
  __syncwarp();
#endif
}

// Sums of products as this lane holds them: of big parts, and of what they leave.
struct MmaSum {
  float big[4], rest[4];

  __device__ __forceinline__ void start(float even, float odd) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      big[i] = i % 2 == 0 ? even : odd;
      rest[i] = 0.0f;
    }
  }
  __device__ __forceinline__ void add(const SplitA& a, const SplitB& b) {
    float product[4] = {};
    mma(product, a.big, b.big);
    mma(rest, a.small, b.big);
    mma(rest, a.big, b.small);
#pragma unroll
    for (int i = 0; i < 4; ++i) big[i] += product[i];
  }
  __device__ __forceinline__ float value(int i) const { return big[i] + rest[i]; }
};

// Copies one float to shared memory; it is there after `wait_for_copies` and a barrier.
__device__ __forceinline__ void copy_float(float* to, const float* from) {
#if DGBENCH_TENSOR_CORES
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at), "l"(from) : "memory");
#else
  *to = *from;
#endif
}

__device__ __forceinline__ void wait_for_copies() {
#if DGBENCH_TENSOR_CORES
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

inline bool has_tensor_cores() {
  int device = 0;
  int major = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return false;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  return major >= 8;
}

}  // namespace dgbench
