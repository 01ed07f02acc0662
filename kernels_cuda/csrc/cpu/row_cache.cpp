#include <nanobind/nanobind.h>

namespace nb = nanobind;

namespace dgbench {
void bind_row_cache(nb::module_&) {}
}  // namespace dgbench
