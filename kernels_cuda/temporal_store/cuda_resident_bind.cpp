// Binding of temporal graphs that live on a device. They are sampled from as mirrors are, which
// temporal_sample/cuda_bind.cpp binds first.
#include "common/operator_definition.hpp"
#include "temporal_store/cuda_resident.hpp"

using namespace nb::literals;

namespace dgbench {
namespace {

using namespace temporal;
using Ids = DeviceArray<const int64_t>;

void insert(ResidentGraph& graph, Ids src, Ids dst, DeviceArray<const double> t,
            MaybeDevice<const int64_t> eid, std::uintptr_t stream) {
  check_size(dst, src.size(), "dst");
  check_size(t, src.size(), "t");
  check_optional(eid, src.size(), "eid");
  const EventBatch batch{src.data(), dst.data(), t.data(), address(eid),
                         static_cast<int64_t>(src.size())};
  graph.insert(batch, stream_of(stream));
}

nb::dict told(const ResidentState& state) {
  nb::dict found;
  found["events"] = state.events;
  found["records"] = state.records;
  found["slots"] = state.used.slots;
  found["fences"] = state.used.fences;
  found["blocks"] = state.used.blocks;
  const Refused& no = state.refused;
  if (no.why == Refusal::None) {
    found["refused"] = nb::none();
  } else {
    found["refused"] = nb::make_tuple(static_cast<int>(no.why), no.batch, no.event, no.value, no.t,
                                      no.last);
  }
  return found;
}

}  // namespace

void bind_resident(nb::module_& m) {
  nb::class_<ResidentGraph, DeviceGraph> graph(m, "ResidentGraph");
  graph
      .def(
          "__init__",
          [](ResidentGraph* self, int64_t num_vertices, int sizing, uint32_t size, int layout,
             bool undirected, double origin, uint64_t cap, int device) {
            require(num_vertices >= 0 && num_vertices < int64_t{kNone},
                    "a store has 0 to 2^32 - 2 vertices");
            require(sizing >= 0 && sizing <= 4 && size >= 1, "no such policy of blocks");
            require(layout >= 0 && layout <= 2, "layout must be 0 to 2");
            new (self) ResidentGraph({num_vertices, {static_cast<Sizing>(sizing), size},
                                      static_cast<Layout>(layout), undirected, origin},
                                     cap, device);
          },
          "num_vertices"_a, "sizing"_a, "size"_a, "layout"_a, "undirected"_a, "origin"_a, "cap"_a,
          "device"_a = 0)
      .def_prop_ro("device_bytes", &ResidentGraph::device_bytes)
      .def_prop_ro("scratch_bytes", &ResidentGraph::scratch_bytes)
      .def_prop_ro("growths", &ResidentGraph::growths);
  add_operator(graph, "clear", [](ResidentGraph& self, std::uintptr_t stream) {
    self.clear(stream_of(stream));
  }, "stream"_a);
  add_operator(graph, "reserve",
               [](ResidentGraph& self, int64_t events, int64_t batch, std::uintptr_t stream) {
                 self.reserve(events, batch, stream_of(stream));
               },
               "events"_a, "batch"_a, "stream"_a);
  add_operator(graph, "insert", &insert, "src"_a.noconvert(), "dst"_a.noconvert(),
               "t"_a.noconvert(), "eid"_a.noconvert().none(), "stream"_a);
  add_operator(graph, "state", [](ResidentGraph& self, std::uintptr_t stream) {
    return told(self.state(stream_of(stream)));
  }, "stream"_a);
  add_operator(graph, "heard", [](ResidentGraph& self) { return told(self.heard()); });
  add_operator(graph, "forgive", [](ResidentGraph& self, std::uintptr_t stream) {
    self.forgive(stream_of(stream));
  }, "stream"_a);
  add_operator(graph, "release", [](ResidentGraph& self) { self.release(); });
}

}  // namespace dgbench
