// Launchers of the graph difference, in the manner of common/launchers.h.
#pragma once

#include "difference/functors.hpp"

namespace dgbench {

extern "C" {
int dgb_locate_changes(const LocateChange* functor, void* stream);
int dgb_rebuild(const Rebuild* functor, void* stream);
}

}  // namespace dgbench
