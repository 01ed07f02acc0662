// Whether this build runs on this device, and what the codes mean.
#include "common/launch.cuh"
#include "common/launchers.h"

#ifndef DGBENCH_CUDA_ARCHITECTURES
#define DGBENCH_CUDA_ARCHITECTURES "unknown"
#endif

namespace dgbench {
namespace {

__global__ void nothing() {}

}  // namespace

extern "C" {

const char* dgb_error_text(int code) { return cudaGetErrorString(static_cast<cudaError_t>(code)); }

const char* dgb_architectures() { return DGBENCH_CUDA_ARCHITECTURES; }

int dgb_current_device(int* number) { return static_cast<int>(cudaGetDevice(number)); }

int dgb_use_device(int number) { return static_cast<int>(cudaSetDevice(number)); }

int dgb_probe() {
  cudaStream_t stream;
  if (const cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)) {
    return static_cast<int>(error);
  }
  nothing<<<1, 1, 0, stream>>>();
  cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
  cudaStreamDestroy(stream);
  return static_cast<int>(error);
}

}  // extern "C"

}  // namespace dgbench
