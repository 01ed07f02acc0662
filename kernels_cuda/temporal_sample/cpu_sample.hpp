// A request served by one sampler, or by one on each of several threads.
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

// Fewer roots are not worth a thread. After a step of training the threads are awake and the caches
// are cold, so that even 128 roots are found faster by two.
constexpr int64_t kRootsOfThread = 64;

// Samples for all roots of a request. One thread finds and writes group by group, and looks for a
// group's candidates while the records of the group before arrive. Several find all, agree on where
// each writes, and then write; so does one when there may be fewer than roots x fanout slots in the
// output, and then nothing is written if they do not suffice.
//
// Returns the number of neighbours, or -1 less the first root that cannot be asked for.
template <class Sampler>
int64_t sample_all(const SampleRequest& request, const SampleOutput& output, int64_t capacity,
                   int threads) {
  constexpr int64_t kLanes = Sampler::kLanes;
  const int64_t groups = (request.roots + kLanes - 1) / kLanes;
  const auto lanes = [&](int64_t group) {
    return static_cast<int>(std::min(kLanes, request.roots - group * kLanes));
  };
  const int64_t worth = std::max<int64_t>(1, request.roots / kRootsOfThread);
  threads = static_cast<int>(std::clamp<int64_t>(threads, 1, worth));
  output.offsets[0] = 0;
  if (threads == 1 && capacity / request.fanout >= request.roots) {
    Sampler sampler(request, output);
    CandidateRange found[2][kLanes];
    int64_t place = 0;
    for (int64_t g = 0; g <= groups; ++g) {
      if (g < groups) sampler.locate(g * kLanes, lanes(g), found[g & 1]);
      if (sampler.bad() < request.roots) return -1 - sampler.bad();
      if (g > 0) place = sampler.write((g - 1) * kLanes, lanes(g - 1), found[~g & 1], place);
      if (g < groups) sampler.ask(g * kLanes, lanes(g), found[g & 1]);
    }
    return place;
  }
  const std::unique_ptr<CandidateRange[]> found(new CandidateRange[request.roots]);
  std::vector<int64_t> begins(threads + 1, 0);
  int64_t bad = request.roots;
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
      sampler.emplace(request, output);
      int64_t mine = 0;
      for (int64_t g = first; g < stop; ++g) {
        sampler->locate(g * kLanes, lanes(g), found.get() + g * kLanes);
        for (int i = 0; i < lanes(g); ++i) mine += request.taken(found[g * kLanes + i].count);
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
      if (bad < request.roots || count > capacity) return;
      int64_t place = begins[me];
      for (int64_t g = first; g < stop; ++g) {
        sampler->ask(g * kLanes, lanes(g), found.get() + g * kLanes);
        place = sampler->write(g * kLanes, lanes(g), found.get() + g * kLanes, place);
      }
    });
  }
  caught.rethrow();
  return bad < request.roots ? -1 - bad : count;
}

}  // namespace dgbench::temporal
