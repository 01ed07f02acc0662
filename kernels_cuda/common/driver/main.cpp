// Runs all cases, or those named on the command line; a line for each, exit code 1 after a wrong
// result and 2 for a name that is no case. `--list` prints their names.
//
//   cmake -S . -B build/cuda -DDGBENCH_CUDA=90 && cmake --build build/cuda --target kernel_driver
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>

#include "common/driver/driver.hpp"
#include "common/launchers.h"

namespace dgbench::driver {
namespace {

const Case* first_case = nullptr;
int checks = 0;
int wrong = 0;

}  // namespace

Case::Case(const char* name, void (*run)()) : name(name), run(run), next(first_case) {
  first_case = this;
}

void succeed(int status, const char* call) {
  if (status == 0) return;
  std::fprintf(stderr, "%s: %s\n", call, dgb_error_text(status));
  std::exit(1);
}

void expect(bool right, const std::string& what) {
  ++checks;
  if (right) return;
  constexpr int kShown = 5;
  if (++wrong <= kShown) std::fprintf(stderr, "  %s\n", what.c_str());
}

HostCsr random_csr(const std::vector<int64_t>& lengths, int64_t columns, Random& random) {
  HostCsr csr;
  csr.columns = columns;
  std::vector<int32_t> all(static_cast<std::size_t>(columns));
  for (int64_t c = 0; c < columns; ++c) all[c] = static_cast<int32_t>(c);
  for (const int64_t length : lengths) {
    for (int64_t i = 0; i < length; ++i) std::swap(all[i], all[i + random.below(columns - i)]);
    csr.indices.insert(csr.indices.end(), all.begin(), all.begin() + length);
    std::sort(csr.indices.end() - length, csr.indices.end());
    csr.indptr.push_back(csr.nnz());
  }
  return csr;
}

}  // namespace dgbench::driver

int main(int count, char** words) {
  using namespace dgbench;
  using namespace dgbench::driver;
  std::map<std::string, const Case*> cases;
  for (const Case* c = first_case; c != nullptr; c = c->next) cases[c->name] = c;
  std::vector<std::string> names;
  for (int i = 1; i < count; ++i) {
    if (std::strcmp(words[i], "--list") == 0) {
      for (const auto& one : cases) std::printf("%s\n", one.first.c_str());
      return 0;
    }
    if (cases.count(words[i]) == 0) {
      std::fprintf(stderr, "no case '%s'; --list prints all\n", words[i]);
      return 2;
    }
    names.push_back(words[i]);
  }
  if (names.empty()) {
    for (const auto& one : cases) names.push_back(one.first);
  }
  RUN(dgb_probe());
  int failed = 0;
  for (const std::string& name : names) {
    checks = wrong = 0;
    cases[name]->run();
    std::printf("%-24s %s, %d checks", name.c_str(), wrong == 0 ? "right" : "WRONG", checks);
    std::printf(wrong == 0 ? "\n" : ", %d wrong\n", wrong);
    std::fflush(stdout);
    failed += wrong > 0;
  }
  std::printf("%d of %d cases right (kernels for %s)\n", static_cast<int>(names.size()) - failed,
              static_cast<int>(names.size()), dgb_architectures());
  return failed > 0;
}
