#include "pack/pack.h"

#include <algorithm>
#include <chrono>
#include <ctime>

#include "formats/packing_csv.h"
#include "memory/packing/plan_synthesizer.h"
#include "memory/packing/validator.h"
#include "memory/plan/plan_file.h"
#include "pack/allocators.h"
#include "pack/read.h"

namespace headroom::pack {
namespace {

using Clock = std::chrono::steady_clock;

// With a budget only the clock ends the search.
constexpr int64_t kEndlessEffort = int64_t{1} << 60;

struct StreamPlan {
  memory::PackingProblem problem;
  std::vector<size_t> requests;  // of the answer
  memory::Synthesis synthesis;
};

std::vector<StreamPlan> problems_of(const PackAnswer& answer) {
  std::vector<StreamPlan> plans(answer.streams);
  for (size_t i = 0; i < answer.requests.size(); ++i) {
    StreamPlan& plan = plans[static_cast<size_t>(answer.requests[i].stream)];
    const PlannedRequest& planned = answer.requests[i];
    plan.problem.requests.push_back(planned.request);
    plan.problem.requests.back().upper = safe_upper(planned.released, planned.request.upper);
    plan.requests.push_back(i);
  }
  for (StreamPlan& plan : plans) plan.problem.alignment = answer.alignment;
  return plans;
}

memory::SynthesisOptions options_of(const PackQuestion& question, Clock::time_point start) {
  memory::SynthesisOptions options;
  options.seed = question.seed;
  if (question.budget_seconds) {
    const auto deadline = start + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(*question.budget_seconds));
    options.placements = kEndlessEffort;
    options.is_out_of_time = [deadline] { return Clock::now() >= deadline; };
  }
  return options;
}

memory::PackingProblem all_streams(const PackAnswer& answer) {
  memory::PackingProblem all;
  all.alignment = answer.alignment;
  for (const PlannedRequest& planned : answer.requests) all.requests.push_back(planned.request);
  return all;
}

// All streams at once: their plans are added up.
Result<void> check_all(const PackAnswer& answer) {
  auto checked = memory::check_problem(all_streams(answer));
  if (checked) return {};
  Error error = checked.error();
  error.where = answer.file + (error.where.empty() ? "" : ", " + error.where);
  return error;
}

// Each stream's plan lies above the one before it.
Result<void> plan(const PackQuestion& question, PackAnswer& answer) {
  HEADROOM_TRY(check_all(answer));
  std::vector<StreamPlan> plans = problems_of(answer);
  const auto start = Clock::now();
  const std::clock_t cpu_start = std::clock();
  memory::SynthesisOptions options = options_of(question, start);
  for (StreamPlan& stream : plans) {
    if (plans.size() == 1 && question.capacity) options.target_bytes = question.capacity->count;
    stream.synthesis = memory::PlanSynthesizer(options).synthesize(stream.problem);
  }
  answer.plan.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  answer.plan.cpu_seconds = static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC;
  answer.plan.is_optimal = true;
  int64_t highest = -1;
  for (const StreamPlan& stream : plans) {
    const memory::Synthesis& synthesis = stream.synthesis;
    const auto judged = memory::validate_packing(stream.problem, synthesis.solution);
    HEADROOM_CHECK(judged, "a plan that the validator refuses");
    for (size_t i = 0; i < stream.requests.size(); ++i) {
      answer.requests[stream.requests[i]].offset =
          answer.plan.size.count + synthesis.solution.offsets[i];
    }
    answer.plan.size += Bytes(synthesis.solution.bytes);
    answer.plan.stream_bytes.emplace_back(synthesis.solution.bytes);
    answer.lower_bound += Bytes(synthesis.lower_bound_bytes);
    answer.plan.proven_bound += Bytes(synthesis.proven_bound_bytes);
    answer.plan.is_optimal = answer.plan.is_optimal && synthesis.is_optimal();
    if (synthesis.solution.bytes > highest) answer.plan.method = synthesis.method;
    highest = std::max(highest, synthesis.solution.bytes);
  }
  if (answer.lower_bound.count > 0) {
    const auto over = static_cast<double>(answer.plan.size.count - answer.lower_bound.count);
    answer.plan.gap_pct = 100 * over / static_cast<double>(answer.lower_bound.count);
  }
  return {};
}

double share_of(Bytes part, Bytes whole) {
  if (whole.count == 0) return 0;
  return static_cast<double>(part.count) / static_cast<double>(whole.count);
}

void compare_allocators(PackAnswer& answer) {
  // What was there at one moment says nothing of what settings would have reserved on the way.
  const bool is_known = !answer.recording || answer.recording->has_history;
  if (is_known) answer.allocators = replay_under_settings(answer.requests);
  // Of all streams together: their own peaks, which lower_bound adds up, may be apart in time.
  const Bytes needed(memory::packing_lower_bound(all_streams(answer)));
  AllocatorFigures planned;
  planned.name = "planned";
  planned.peak_reserved = answer.plan.size;
  answer.allocators.push_back(planned);
  for (AllocatorFigures& figures : answer.allocators) {
    figures.peak_allocated = needed;
    figures.efficiency = share_of(needed, figures.peak_reserved);
  }
  if (answer.recorded) {
    answer.recorded->peak_allocated = needed;
    answer.recorded->efficiency = share_of(needed, answer.recorded->peak_reserved);
  }
  std::stable_sort(answer.allocators.begin(), answer.allocators.end(),
                   [](const AllocatorFigures& a, const AllocatorFigures& b) {
                     return a.peak_reserved < b.peak_reserved;
                   });
}

}  // namespace

Result<PackAnswer> answer(const PackQuestion& question) {
  HEADROOM_ASSIGN(PackAnswer answer, read_requests(question));
  return answer_requests(question, std::move(answer));
}

Result<PackAnswer> answer_requests(const PackQuestion& question, PackAnswer answer) {
  HEADROOM_TRY(plan(question, answer));
  compare_allocators(answer);
  if (answer.recording) {
    answer.understanding = understand(answer, answer.marks, question.seed);
  }
  return answer;
}

std::string placements_of(const PackAnswer& answer) {
  formats::PackingInstance instance;
  memory::PackingSolution solution;
  for (const PlannedRequest& planned : answer.requests) {
    instance.ids.push_back(planned.id);
    instance.problem.requests.push_back(planned.request);
    solution.offsets.push_back(planned.offset);
  }
  return formats::placements_csv(instance, solution);
}

Result<std::string> plan_file_of(const PackAnswer& answer) {
  return memory::plan_file(memory_plan_of(answer));
}

}  // namespace headroom::pack
