// Where the pools of a temporal graph lie (GNNFlow 4.2): device, page-locked or managed memory.
#include "cuda/launch.cuh"
#include "cuda/temporal_memory.h"

namespace dgbench {
namespace {

// The status of a call; an error of memory is taken back, so that the next launch does not report it.
int settled(cudaError_t status) {
  if (status != cudaSuccess) cudaGetLastError();
  return static_cast<int>(status);
}

}  // namespace

extern "C" {

int dgb_device_allocate(void** to, uint64_t bytes) { return settled(cudaMalloc(to, bytes)); }

int dgb_managed_allocate(void** to, uint64_t bytes) {
  return settled(cudaMallocManaged(to, bytes));
}

int dgb_device_free(void* at) { return settled(cudaFree(at)); }

int dgb_pin(void* at, uint64_t bytes) {
  return settled(cudaHostRegister(at, bytes, cudaHostRegisterMapped | cudaHostRegisterPortable));
}

int dgb_unpin(void* at) { return settled(cudaHostUnregister(at)); }

int dgb_same_addresses(int* yes) {
  int device = 0;
  const cudaError_t status = cudaGetDevice(&device);
  if (status != cudaSuccess) return settled(status);
  return settled(
      cudaDeviceGetAttribute(yes, cudaDevAttrCanUseHostPointerForRegisteredMem, device));
}

int dgb_copy_in(void* to, const void* from, uint64_t bytes, void* stream) {
  return settled(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, as_stream(stream)));
}

int dgb_wait(void* stream) { return settled(cudaStreamSynchronize(as_stream(stream))); }

int dgb_scatter_words(const ScatterWords* functor, int64_t words, void* stream) {
  return for_each(words, *functor, stream);
}

}  // extern "C"

}  // namespace dgbench
