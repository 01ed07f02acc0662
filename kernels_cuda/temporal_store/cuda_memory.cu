// Where the pools of a temporal graph lie (GNNFlow 4.2): device, page-locked or managed memory.
#include "common/launch.cuh"
#include "temporal_store/cuda_memory.h"

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

int dgb_copy_out(void* to, const void* from, uint64_t bytes, void* stream) {
  return settled(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, as_stream(stream)));
}

int dgb_copy_within(void* to, const void* from, uint64_t bytes, void* stream) {
  return settled(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, as_stream(stream)));
}

int dgb_scatter_pieces(const ScatterPieces* functor, int64_t pieces, void* stream) {
  return for_each(pieces * ScatterPieces::kLanes, *functor, stream);
}

int dgb_host_allocate(void** to, uint64_t bytes) {
  return settled(cudaHostAlloc(to, bytes, cudaHostAllocPortable));
}

int dgb_host_free(void* at) { return settled(cudaFreeHost(at)); }

int dgb_mark_make(void** mark) {
  cudaEvent_t event = nullptr;
  const int status = settled(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  *mark = event;
  return status;
}

int dgb_mark_set(void* mark, void* stream) {
  return settled(cudaEventRecord(static_cast<cudaEvent_t>(mark), as_stream(stream)));
}

int dgb_mark_wait(void* mark) {
  return settled(cudaEventSynchronize(static_cast<cudaEvent_t>(mark)));
}

int dgb_mark_await(void* mark, void* stream) {
  return settled(cudaStreamWaitEvent(as_stream(stream), static_cast<cudaEvent_t>(mark), 0));
}

int dgb_mark_drop(void* mark) { return settled(cudaEventDestroy(static_cast<cudaEvent_t>(mark))); }

}  // extern "C"

}  // namespace dgbench
