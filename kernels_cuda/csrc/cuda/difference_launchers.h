// Launchers of the graph difference, in the manner of launchers.h.
#pragma once

#include "common/difference_functors.hpp"

namespace dgbench {

extern "C" {
int dgb_locate_changes(const LocateChange* functor, void* stream);
int dgb_rebuild(const Rebuild* functor, void* stream);
}

}  // namespace dgbench
