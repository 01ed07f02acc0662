// Temporal sampling on a device: a thread for each target's search and one for each neighbour's copy,
// so that neighbouring threads write neighbouring places (GNNFlow 4.2).
#include "cuda/launch.cuh"
#include "cuda/temporal_launchers.h"

namespace dgbench::temporal {

extern "C" {

int dgb_temporal_locate(const Hop* hop, void* stream) {
  switch (hop->graph.layout) {
    case Layout::Packed: return for_each(hop->room, Locate<Packed>{*hop}, stream);
    case Layout::Compact: return for_each(hop->room, Locate<Compact>{*hop}, stream);
    default: return for_each(hop->room, Locate<Wide>{*hop}, stream);
  }
}

int dgb_temporal_emit(const Hop* hop, void* stream) {
  const int64_t n = hop->room * hop->fanout;
  switch (hop->graph.layout) {
    case Layout::Packed: return for_each(n, Emit<Packed>{{*hop}}, stream);
    case Layout::Compact: return for_each(n, Emit<Compact>{{*hop}}, stream);
    default: return for_each(n, Emit<Wide>{{*hop}}, stream);
  }
}

}  // extern "C"

}  // namespace dgbench::temporal
