// The masked union on the device: the functors of the CPU, one thread per row.
#include "common/launch.cuh"
#include "overlap/cuda_launchers.h"

namespace dgbench {

extern "C" {

int dgb_count_union(const CountUnion* functor, int64_t rows, void* stream) {
  return for_each(rows, *functor, stream);
}

int dgb_unite(const FillUnion* functor, int64_t rows, void* stream) {
  return for_each(rows, *functor, stream);
}

}  // extern "C"

}  // namespace dgbench
