// Marks for code that g++ and nvcc both compile: the same functors run under OpenMP and on a grid.
#pragma once

#if defined(__CUDACC__)
#define DGB_HD __host__ __device__ __forceinline__
#else
#define DGB_HD inline
#endif

#if defined(__CUDA_ARCH__)
#define DGB_ON_DEVICE 1
#else
#define DGB_ON_DEVICE 0
#endif
