#include <nanobind/nanobind.h>

namespace nb = nanobind;

namespace dgbench {
void bind_temporal_store(nb::module_&) {}
}  // namespace dgbench
