// Putting together what arrives over the link; see common/wire_functors.hpp.
#include "common/wire_functors.hpp"
#include "cuda/launch.cuh"
#include "cuda/launchers.h"

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
