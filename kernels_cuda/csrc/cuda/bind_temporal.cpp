#include "cuda/arrays.hpp"

namespace dgbench {
void bind_temporal(nb::module_&) {}
}  // namespace dgbench
