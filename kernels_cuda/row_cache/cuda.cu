// Gathering feature rows on a device from a cache's slots and from where misses come from, in one
// pass (GNNFlow 4.3).
#include "common/launch.cuh"
#include "row_cache/cuda_launchers.h"

namespace dgbench {

extern "C" {

int dgb_look_up(const LookUp* functor, void* stream) {
  return for_each(functor->count, *functor, stream);
}

int dgb_gather_rows(const GatherRows<1>* functor, void* stream) {
  const GatherRows<1>& g = *functor;
  const bool wide = g.dim % 4 == 0 && aligned(g.kept, 16) && aligned(g.source, 16) &&
                    aligned(g.out, 16);
  if (!wide) return for_each(g.count * g.dim, g, stream);
  const GatherRows<4> four{g.place, g.misses, g.kept, g.source, g.out, g.count, g.dim};
  return for_each(g.count * (g.dim / 4), four, stream);
}

}  // extern "C"

}  // namespace dgbench
