// How often are iterations found, classes right, and plans good, on generated runs with known
// truth?
//
// Not one of the benchmark programs: a line of CSV for each shape of run, over the seeds that are
// named.
//   cmake --build build/dev --target headroom_memory
//   g++ -O2 -std=c++20 -Isrc perf/pack/iterations.cpp build/dev/src/memory/libheadroom_memory.a \
//       build/dev/src/base/libheadroom_base.a -lpthread -o /tmp/iterations
//   /tmp/iterations FIRST_SEED LAST_SEED > result.csv
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "memory/plan/plan_score.h"
#include "memory/plan/run_truth.h"

namespace {

using namespace headroom::memory;

struct Case {
  std::string name;
  RunShape shape;
};

std::vector<Case> cases() {
  using Work = RunShape::Work;
  return {
      {"alike", {}},
      {"two iterations", {.iterations = 2}},
      {"4 micro-batches", {.iterations = 4, .micro_batches = 4}},
      {"4 micro-batches, fused optimizer",
       {.iterations = 5, .micro_batches = 4, .steps_parameters = false}},
      {"4 micro-batches, gradients kept",
       {.iterations = 6, .micro_batches = 4, .keeps_gradients = true}},
      {"30 iterations", {.iterations = 30}},
      {"48 layers", {.iterations = 3, .layers = 48}},
      {"recorded from the middle", {.starts_at = 0.4, .ends_at = 0.6}},
      {"gradients freed late", {.frees_gradients_late = true}},
      {"5 % injected", {.iterations = 12, .injected_share = 0.05}},
      {"20 % injected", {.iterations = 12, .injected_share = 0.2}},
      {"three lengths", {.iterations = 24, .lengths = 3}},
      {"any length", {.iterations = 24, .lengths = 0}},
      {"any length, 5 % injected", {.iterations = 24, .injected_share = 0.05, .lengths = 0}},
      {"evaluations at random", {.iterations = 24, .evaluations = 8}},
      {"evaluations after every other step", {.iterations = 24, .evaluations = 2}},
      {"evaluations and 5 % injected",
       {.iterations = 24, .injected_share = 0.05, .evaluations = 8}},
      {"evaluations, three lengths", {.iterations = 24, .lengths = 3, .evaluations = 8}},
      {"evaluations, 4 micro-batches", {.iterations = 24, .micro_batches = 4, .evaluations = 8}},
      {"tokens", {.work = Work::decoding, .iterations = 40}},
      {"tokens and prompts", {.work = Work::decoding, .iterations = 60, .prompt_every = 15}},
      {"tokens, 10 % injected", {.work = Work::decoding, .iterations = 40, .injected_share = 0.1}},
  };
}

struct Totals {
  size_t runs = 0, all_right = 0, found = 0, right = 0, real = 0;
  size_t evaluations = 0, evaluations_found = 0;
  size_t random = 0, random_found = 0, regular = 0, regular_called_dynamic = 0;
  size_t scored = 0, requests = 0, planned = 0, reused = 0;
  double efficiency = 0, seconds = 0;
  size_t read = 0;
};

void run_one(uint64_t seed, const RunShape& shape, Totals& totals) {
  const GeneratedRun run = generate_run(seed, shape);
  const std::clock_t start = std::clock();
  const Iterations iterations = find_iterations(run.requests);
  totals.seconds += static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  totals.read += run.requests.size();
  const BoundaryScore score = score_boundaries(run, shape, iterations);
  ++totals.runs;
  totals.found += score.found;
  totals.right += score.right;
  totals.real += score.real;
  totals.evaluations_found += score.evaluations;
  for (const int64_t place : run.places) totals.evaluations += place == kEvaluationLine ? 1 : 0;
  if (score.right == score.found && score.right + 1 >= score.real) ++totals.all_right;
  const RequestClasses classes = classify_requests(run.requests, iterations);
  for (size_t i = 0; i < run.requests.size(); ++i) {
    const RequestClass& request = classes.by_request[i];
    if (request.recurrence == Recurrence::once) continue;
    const bool is_dynamic = request.recurrence == Recurrence::dynamic;
    if (run.places[i] == kNowhere) {
      ++totals.random;
      totals.random_found += is_dynamic ? 1 : 0;
    } else {
      ++totals.regular;
      totals.regular_called_dynamic += is_dynamic ? 1 : 0;
    }
  }
  if (iterations.whole.empty()) return;
  const SlotFinder finder(run.requests, iterations);
  PlanOptions options;
  options.synthesis.placements = 20'000;
  options.synthesis.threads = 1;
  const auto held_out = score_held_out({run.requests, iterations, classes, finder}, options);
  if (!held_out) return;
  ++totals.scored;
  totals.requests += held_out->requests;
  totals.planned += held_out->planned;
  totals.reused += held_out->reused;
  totals.efficiency += held_out->efficiency();
}

double pct(size_t part, size_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: iterations FIRST_SEED LAST_SEED\n");
    return 2;
  }
  std::printf(
      "runs_of,runs,all_right,boundary_precision_pct,boundary_recall_pct,evaluations,"
      "evaluations_found,random_found_dynamic_pct,"
      "regular_called_dynamic_pct,held_out_planned_pct,held_out_reused_pct,"
      "held_out_efficiency_pct_mean,find_cpu_us_per_request\n");
  for (const Case& one : cases()) {
    Totals totals;
    for (uint64_t seed = std::strtoull(argv[1], nullptr, 10);
         seed <= std::strtoull(argv[2], nullptr, 10); ++seed) {
      run_one(seed, one.shape, totals);
    }
    std::printf(
        "\"%s\",%zu,%zu,%.2f,%.2f,%zu,%zu,%.2f,%.2f,%.2f,%.2f,%.2f,%.2f\n", one.name.c_str(),
        totals.runs, totals.all_right, pct(totals.right, totals.found),
        pct(totals.right, totals.real), totals.evaluations, totals.evaluations_found,
        pct(totals.random_found, totals.random), pct(totals.regular_called_dynamic, totals.regular),
        pct(totals.planned, totals.requests), pct(totals.reused, totals.requests),
        totals.scored == 0 ? 0 : 100 * totals.efficiency / static_cast<double>(totals.scored),
        1e6 * totals.seconds / static_cast<double>(totals.read));
    std::fflush(stdout);
  }
  return 0;
}
