// The class TemporalStore for Python. Arrays are made by the caller and checked here.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <tuple>

#include "common/check.hpp"
#include "temporal_store/cpu_store.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace dgbench {
namespace {

using namespace temporal;
using Ids = Array<const std::int64_t>;

std::uint32_t checked_vertex(const TemporalStore& store, std::int64_t vertex) {
  if (vertex < 0 || vertex >= store.num_vertices()) {
    reject("vertex is " + std::to_string(vertex) + ", the store has vertices 0 to " +
           std::to_string(store.num_vertices() - 1));
  }
  return static_cast<std::uint32_t>(vertex);
}

// Calls `call` for every record of a vertex that is not hidden, in time order.
template <class Call>
void for_each_seen(const StoreView& view, std::uint32_t vertex, Call call) {
  const Vertex& v = view.vertices[vertex];
  if ((v.flags & kDeleted) != 0) return;
  with_layout(view.layout, [&](auto record) {
    const auto* pool = static_cast<const decltype(record)*>(view.records);
    for_each_run(view, v, [&](std::uint64_t first, std::uint32_t size) {
      for (std::uint64_t i = first; i < first + size; ++i) {
        if (!is_hidden(view, pool[i])) {
          call(static_cast<std::int64_t>(pool[i].node), static_cast<std::int64_t>(pool[i].eid),
               time_of(pool[i], view.origin));
        }
      }
    });
  });
}

std::int64_t degree_of(const StoreView& view, std::uint32_t vertex) {
  const Vertex& v = view.vertices[vertex];
  if ((v.flags & kDeleted) != 0) return 0;
  if (view.deleted == 0) return std::int64_t{v.before} + v.size - v.dead;
  std::int64_t seen = 0;
  for_each_seen(view, vertex, [&](std::int64_t, std::int64_t, double) { ++seen; });
  return seen;
}

void degrees(const TemporalStore& store, Array<std::int64_t> out) {
  check_size(out, static_cast<std::size_t>(store.num_vertices()), "out");
  nb::gil_scoped_release release;
  const StoreView view = store.view();
  for (std::size_t v = 0; v < out.size(); ++v) {
    out.data()[v] = degree_of(view, static_cast<std::uint32_t>(v));
  }
}

void list_lengths(const TemporalStore& store, Array<std::int32_t> out) {
  check_size(out, static_cast<std::size_t>(store.num_vertices()), "out");
  const StoreView view = store.view();
  for (std::size_t v = 0; v < out.size(); ++v) {
    const Vertex& one = view.vertices[v];
    out.data()[v] = static_cast<std::int32_t>(one.fences + (one.tail == kNone ? 0 : 1));
  }
}

std::int64_t degree(const TemporalStore& store, std::int64_t vertex) {
  return degree_of(store.view(), checked_vertex(store, vertex));
}

void neighbours(const TemporalStore& store, std::int64_t vertex, Array<std::int64_t> ids,
                Array<std::int64_t> eids, Array<double> times) {
  const std::uint32_t at = checked_vertex(store, vertex);
  const StoreView view = store.view();
  const auto count = static_cast<std::size_t>(degree_of(view, at));
  check_size(ids, count, "ids");
  check_size(eids, count, "eids");
  check_size(times, count, "times");
  std::size_t i = 0;
  for_each_seen(view, at, [&](std::int64_t node, std::int64_t eid, double t) {
    ids.data()[i] = node;
    eids.data()[i] = eid;
    times.data()[i++] = t;
  });
}

std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t> insert(
    TemporalStore& store, Ids src, Ids dst, Array<const double> t, Ids eid, bool sort) {
  check_size(dst, src.size(), "dst");
  check_size(t, src.size(), "t");
  check_size(eid, src.size(), "eid");
  nb::gil_scoped_release release;
  const Batch batch{src.data(), dst.data(), t.data(), eid.data(),
                    static_cast<std::int64_t>(src.size())};
  const Inserted made = store.insert(batch, sort);
  return {made.records, made.vertices, made.blocks, made.late};
}

std::int64_t delete_edges(TemporalStore& store, Ids eids) {
  nb::gil_scoped_release release;
  return store.delete_edges(eids.data(), static_cast<std::int64_t>(eids.size()));
}

void delete_vertices(TemporalStore& store, Ids ids, bool deleted) {
  store.delete_vertices(ids.data(), static_cast<std::int64_t>(ids.size()), deleted);
}

nb::list deleted(const TemporalStore& store) {
  nb::list ids;
  const StoreView view = store.view();
  for (std::int64_t v = 0; view.deleted > 0 && v < view.num_vertices; ++v) {
    if ((view.vertices[v].flags & kDeleted) != 0) ids.append(v);
  }
  return ids;
}

Shelf* older(const TemporalStore& store, double before) {
  nb::gil_scoped_release release;
  return new Shelf(store.older(before));
}

nb::tuple counts(const TemporalStore& store) {
  const StoreCounts c = store.counts();
  return nb::make_tuple(c.vertices, c.fences, c.blocks, c.bytes, c.events, c.stored, c.dead,
                        c.deleted, c.generation, c.last_time);
}

void follow(TemporalStore& store, const nb::tuple& told) {
  if (told.size() != 10) reject("counts has " + std::to_string(told.size()) + " numbers, not 10");
  const auto number = [&](int i) { return nb::cast<std::int64_t>(told[i]); };
  store.follow({number(0), number(1), number(2), number(3), number(4), number(5), number(6),
                number(7), number(8), nb::cast<double>(told[9])});
}

void drop(TemporalStore& store, double before) {
  nb::gil_scoped_release release;
  store.drop(before);
}

void reload(TemporalStore& store, Ids vertices, Ids counts, Ids sizes, Ids capacity,
            Array<const std::uint8_t> records, bool sort) {
  check_size(counts, vertices.size(), "counts");
  check_size(capacity, sizes.size(), "capacity");
  if (records.size() > 0 && reinterpret_cast<std::uintptr_t>(records.data()) % 16 != 0) {
    reject("records must begin at a multiple of 16 bytes");
  }
  nb::gil_scoped_release release;
  store.reload({vertices.data(), counts.data(), static_cast<std::int64_t>(vertices.size()),
                sizes.data(), capacity.data(), static_cast<std::int64_t>(sizes.size()),
                records.data(), static_cast<std::int64_t>(records.size())},
               sort);
}

// An array of a shelf, without a copy: it lives as long as the shelf.
template <class T>
auto shown(std::vector<T> Shelf::* part) {
  return [part](Shelf& shelf) {
    std::vector<T>& values = shelf.*part;
    return nb::ndarray<nb::numpy, T, nb::ndim<1>>(values.data(), {values.size()});
  };
}

nb::dict bytes(const TemporalStore& store) {
  nb::dict parts;
  parts["vertices"] = store.bytes_of_vertices();
  parts["fences"] = store.bytes_of_fences();
  parts["blocks"] = store.bytes_of_blocks();
  parts["records"] = store.bytes_of_records();
  parts["scratch"] = store.bytes_of_scratch();
  return parts;
}

// The pools in use, without a copy: vertices, fences, blocks, records. They stay where they are until
// blocks are taken out, and are read-only for whoever mirrors them.
nb::tuple pools(nb::handle self) {
  const StoreView view = nb::cast<const TemporalStore&>(self).view();
  const auto bytes = [&](const void* data, std::size_t size) {
    return nb::cast(nb::ndarray<nb::numpy, const std::uint8_t, nb::ndim<1>>(data, {size}, self));
  };
  const std::size_t record = with_layout(view.layout, [](auto one) { return sizeof(one); });
  return nb::make_tuple(
      bytes(view.vertices, static_cast<std::size_t>(view.num_vertices) * sizeof(Vertex)),
      bytes(view.fences, view.num_fences * sizeof(Fence)),
      bytes(view.blocks, view.num_blocks * sizeof(Block)),
      bytes(view.records, view.num_slots * record));
}

}  // namespace

void bind_temporal_store(nb::module_& m) {
  nb::class_<Shelf>(m, "Shelf")
      .def("vertices", shown(&Shelf::vertices), nb::rv_policy::reference_internal)
      .def("counts", shown(&Shelf::counts), nb::rv_policy::reference_internal)
      .def("sizes", shown(&Shelf::sizes), nb::rv_policy::reference_internal)
      .def("capacity", shown(&Shelf::capacity), nb::rv_policy::reference_internal)
      .def("records", shown(&Shelf::records), nb::rv_policy::reference_internal);
  nb::class_<TemporalStore>(m, "TemporalStore")
      .def(
          "__init__",
          [](TemporalStore* self, std::int64_t vertices, int sizing, std::int64_t size, int layout,
             bool undirected, double origin, const nb::tuple& files, bool writes) {
            if (sizing < 0 || sizing > 4) reject("sizing must be 0 to 4");
            if (layout < 0 || layout > 2) reject("layout must be 0 to 2");
            if (size < 1 || size >= static_cast<std::int64_t>(kNone)) {
              reject("size must be 1 to 2^32 - 2");
            }
            PoolFiles pools;
            if (files.size() > 0) {
              if (files.size() != 4) reject("files must be none, or one for each of four pools");
              int number[4];
              for (int i = 0; i < 4; ++i) {
                number[i] = nb::cast<int>(files[i]);
                if (number[i] < 0) reject("files must be descriptors of open files");
              }
              pools = {number[0], number[1], number[2], number[3], writes};
            } else if (!writes) {
              reject("a store that writes nothing needs the files of one that does");
            }
            new (self) TemporalStore(
                vertices, {static_cast<Sizing>(sizing), static_cast<std::uint32_t>(size)},
                static_cast<Layout>(layout), undirected, origin, pools);
          },
          "num_vertices"_a, "sizing"_a, "size"_a, "layout"_a, "undirected"_a, "origin"_a,
          "files"_a = nb::tuple(), "writes"_a = true)
      .def("counts", &counts)
      .def("follow", &follow, "counts"_a)
      .def("insert", &insert, "src"_a.noconvert(), "dst"_a.noconvert(), "t"_a.noconvert(),
           "eid"_a.noconvert(), "sort"_a)
      .def("add_vertices", &TemporalStore::add_vertices, "count"_a)
      .def("degrees", &degrees, "out"_a.noconvert())
      .def("list_lengths", &list_lengths, "out"_a.noconvert())
      .def("degree", &degree, "vertex"_a)
      .def("neighbours", &neighbours, "vertex"_a, "ids"_a.noconvert(), "eids"_a.noconvert(),
           "times"_a.noconvert())
      .def("bytes", &bytes)
      .def("delete_edges", &delete_edges, "eids"_a.noconvert())
      .def("delete_vertices", &delete_vertices, "ids"_a.noconvert(), "deleted"_a)
      .def("deleted", &deleted)
      .def("older", &older, "before"_a)
      .def("drop", &drop, "before"_a)
      .def("reload", &reload, "vertices"_a.noconvert(), "counts"_a.noconvert(),
           "sizes"_a.noconvert(), "capacity"_a.noconvert(), "records"_a.noconvert(), "sort"_a)
      .def("resume", &TemporalStore::resume, "events"_a, "last_time"_a)
      .def("pools", [](nb::handle_t<TemporalStore> self) { return pools(self); })
      .def_prop_ro("num_deleted_vertices",
                   [](const TemporalStore& store) { return store.view().deleted; })
      .def_prop_ro("generation", &TemporalStore::generation)
      .def_prop_ro("num_vertices", &TemporalStore::num_vertices)
      .def_prop_ro("num_events", &TemporalStore::num_events)
      .def_prop_ro("num_records", &TemporalStore::num_records)
      .def_prop_ro("num_stored", &TemporalStore::num_stored)
      .def_prop_ro("num_blocks",
                   [](const TemporalStore& store) { return store.view().num_blocks; })
      .def_prop_ro("num_slots", [](const TemporalStore& store) { return store.view().num_slots; })
      .def_prop_ro("last_time", &TemporalStore::last_time);
}

}  // namespace dgbench
