// One question for one sampler or several threads of them.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/caught.hpp"
#include "temporal_sample/cpu_runs.hpp"
#include "temporal_sample/cpu_search.hpp"

namespace dgbench::temporal {

// Answers all of a question. One thread finds and writes group by group, and looks for a group's
// candidates while the records of the group before arrive. Several find all, agree on where each
// writes, and then write; so does one when there may be fewer than roots x fanout places, and then
// nothing is written if they do not suffice.
//
// Returns the number of neighbours, or -1 less the first root that cannot be asked for.
template <class Sampler>
int64_t answer(const Question& q, const Answer& to, int64_t places, int threads) {
  constexpr int64_t kLanes = Sampler::kLanes;
  const int64_t groups = (q.roots + kLanes - 1) / kLanes;
  const auto lanes = [&](int64_t group) {
    return static_cast<int>(std::min(kLanes, q.roots - group * kLanes));
  };
  const int64_t worth = std::max<int64_t>(1, q.roots / 256);
  threads = static_cast<int>(std::clamp<int64_t>(threads, 1, worth));
  to.offsets[0] = 0;
  if (threads == 1 && places / q.fanout >= q.roots) {
    Sampler sampler(q, to);
    Found found[2][kLanes];
    int64_t place = 0;
    for (int64_t g = 0; g <= groups; ++g) {
      if (g < groups) sampler.locate(g * kLanes, lanes(g), found[g & 1]);
      if (sampler.bad() < q.roots) return -1 - sampler.bad();
      if (g > 0) place = sampler.write((g - 1) * kLanes, lanes(g - 1), found[~g & 1], place);
      if (g < groups) sampler.ask(g * kLanes, lanes(g), found[g & 1]);
    }
    return place;
  }
  const std::unique_ptr<Found[]> found(new Found[q.roots]);
  std::vector<int64_t> begins(threads + 1, 0);
  int64_t bad = q.roots;
  int64_t count = 0;
  Caught caught;
#pragma omp parallel num_threads(threads)
  {
    const int64_t team = omp_get_num_threads();
    const int64_t me = omp_get_thread_num();
    const int64_t first = groups * me / team;
    const int64_t stop = groups * (me + 1) / team;
    std::optional<Sampler> sampler;
    caught.run([&] {
      sampler.emplace(q, to);
      int64_t mine = 0;
      for (int64_t g = first; g < stop; ++g) {
        sampler->locate(g * kLanes, lanes(g), found.get() + g * kLanes);
        for (int i = 0; i < lanes(g); ++i) mine += q.taken(found[g * kLanes + i].count);
      }
      begins[me + 1] = mine;
#pragma omp critical
      bad = std::min(bad, sampler->bad());
    });
#pragma omp barrier
#pragma omp single
    {
      for (int64_t t = 0; t < team; ++t) begins[t + 1] += begins[t];
      count = begins[team];
    }
    caught.run([&] {
      if (bad < q.roots || count > places) return;
      int64_t place = begins[me];
      for (int64_t g = first; g < stop; ++g) {
        sampler->ask(g * kLanes, lanes(g), found.get() + g * kLanes);
        place = sampler->write(g * kLanes, lanes(g), found.get() + g * kLanes, place);
      }
    });
  }
  caught.rethrow();
  return bad < q.roots ? -1 - bad : count;
}

}  // namespace dgbench::temporal
