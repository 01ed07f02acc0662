// Putting together what arrives over the link; see slices/unpack_functors.hpp.
#include "common/launch.cuh"
#include "slices/cuda_launchers.h"
#include "slices/unpack_functors.hpp"

namespace dgbench {

extern "C" {

int dgb_unpack_offsets(const UnpackOffsets* functor, void* stream) {
  return for_each(functor->size(), *functor, stream);
}

int dgb_merge_exclusive(const MergeExclusive* functor, void* stream) {
  return for_each(functor->size(), *functor, stream);
}

}  // extern "C"

}  // namespace dgbench
