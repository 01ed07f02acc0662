#include <nanobind/nanobind.h>

namespace nb = nanobind;

namespace dgbench {
void bind_tcsr(nb::module_&) {}
}  // namespace dgbench
