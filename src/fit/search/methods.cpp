#include "fit/search/methods.h"

#include <algorithm>
#include <functional>
#include <span>
#include <tuple>
#include <utility>

#include "base/parallel.h"
#include "fit/measured/correction.h"
#include "fit/prediction.h"
#include "fit/scenario/errors.h"
#include "fit/scenario/scenario.h"
#include "fit/scenario/shared_steps.h"
#include "fit/scenario/zero.h"
#include "fit/search/candidate.h"
#include "fit/search/divisions.h"
#include "fit/search/network.h"
#include "fit/search/precision.h"
#include "fit/search/search.h"
#include "fit/search/within_ways.h"
#include "fit/stages.h"
#include "fit/time/pipeline_time.h"
#include "fit/time/step_timer.h"
#include "step/transform/tensor_plan.h"
#include "text/number.h"

namespace headroom::fit {

namespace {

// How much is computed twice: nothing, cheap operators, all of forward.
int recomputation_of(const FitQuestion& question) {
  switch (question.checkpointing.kind) {
    case CheckpointingKind::none:
      return 0;
    case CheckpointingKind::selective:
      return 1;
    case CheckpointingKind::every_n:
    case CheckpointingKind::full:
      return 2;
  }
  return 2;
}

// What fits: the fastest, then what has no time. What does not: what misses least. Equals stay in
// the order of divisions_among().
bool comes_before(const Candidate& a, const Candidate& b) {
  if (a.row.reason.empty() != b.row.reason.empty()) return a.row.reason.empty();
  if (a.row.verdict != b.row.verdict) return rank_of(a.row.verdict) < rank_of(b.row.verdict);
  const auto room = [](const Candidate& c) { return -c.row.room.expected.count; };
  if (a.row.verdict == Verdict::no) return room(a) < room(b);
  if (a.row.time.has_value() != b.row.time.has_value()) return a.row.time.has_value();
  if (a.row.time) {
    return a.row.time->step_seconds.expected < b.row.time->step_seconds.expected;
  }
  return std::tuple(recomputation_of(a.question), a.row.sent.count) <
         std::tuple(recomputation_of(b.question), b.row.sent.count);
}

std::vector<std::string> checkpointings_of(const FitQuestion& question) {
  if (question.given.contains("checkpointing")) return {""};
  return {"none", "selective", "full"};
}

// NVLink joins the GPUs of a machine, eight of most.
Result<int64_t> most_tensor_ranks(const Scenario& scenario, int64_t gpus) {
  constexpr int64_t kMost = 16;
  HEADROOM_ASSIGN(const timing::Cluster cluster, cluster_of(scenario.question, gpus));
  return std::min(kMost, cluster.devices_per_node);
}

// Of architectures and settings that it is modelled of.
bool can_be_divided(const Scenario& scenario, const WayToDivide& division) {
  if (scenario.traced) return false;
  FitQuestion question = scenario.question;
  if (!question.set("method", method_word(question) + "," + division.words)) return false;
  question.sequence_parallel |= division.divides_sequences;
  // As few micro-batches as there may be, and nothing that some of them exclude.
  question.grad_accum = question.stages;
  const auto varied = vary(scenario, question);
  return varied && varied->steps->of(*varied);
}

// By transformers' plans; and by torchtitan's, where they are not asked for alone.
void add_tensor_divisions(const Scenario& scenario, int64_t gpus, int64_t most,
                          std::vector<WayToDivide>& divisions) {
  const bool is_given = scenario.question.given.contains("sequence-parallel");
  const bool is_wanted = is_given && scenario.question.sequence_parallel;
  for (std::string& words : tensor_divisions_among(gpus, most)) {
    if (!is_wanted) divisions.push_back({std::move(words)});
  }
  if (is_given && !is_wanted) return;
  for (std::string& words : sequence_divisions_among(gpus, most)) {
    const WayToDivide division{std::move(words), true};
    if (is_wanted || can_be_divided(scenario, division)) divisions.push_back(division);
  }
}

Result<std::vector<WayToDivide>> divisions_of(const Scenario& scenario, int64_t gpus) {
  if (gpus == 1) return std::vector<WayToDivide>{{}};
  std::vector<WayToDivide> divisions;
  for (std::string& words : divisions_among(gpus)) divisions.push_back({std::move(words)});
  for (std::string& words : expert_divisions_among(gpus)) {
    if (can_be_divided(scenario, {words})) divisions.push_back({std::move(words)});
  }
  for (std::string& words : context_divisions_among(gpus)) {
    if (can_be_divided(scenario, {words})) divisions.push_back({std::move(words)});
  }
  for (std::string& words : pipelines_among(gpus)) {
    const bool is_wanted = scenario.question.given.contains("pipeline-schedule");
    if (is_wanted || can_be_divided(scenario, {words})) divisions.push_back({std::move(words)});
  }
  HEADROOM_ASSIGN(const std::string model_type, model_type_of(scenario));
  const auto plan = step::tensor_plan(model_type);
  const bool trains_all = scenario.question.method == Method::full;
  if (scenario.traced || !trains_all || !plan || !plan->is_transformers) return divisions;
  HEADROOM_ASSIGN(const int64_t most, most_tensor_ranks(scenario, gpus));
  add_tensor_divisions(scenario, gpus, most, divisions);
  return divisions;
}

// The same sequences in a step as where each GPU has a batch of its own.
Result<void> accumulate_for_group(const FitQuestion& asked, Candidate& candidate) {
  FitQuestion& question = candidate.question;
  const int64_t group = question.tensor_ranks * question.context_ranks * question.stages;
  const auto accumulated = checked_multiply(asked.grad_accum, group);
  if (group == 1 || !accumulated) return {};
  HEADROOM_TRY(question.set("grad-accum", std::to_string(*accumulated)));
  candidate.row.flags += " --grad-accum " + std::to_string(*accumulated);
  return {};
}

// So many as the devices that have sequences of their own leave; the row says why, where they do
// not come out even.
Result<void> accumulate(const FitQuestion& asked, Candidate& candidate) {
  if (!asked.global_batch) return accumulate_for_group(asked, candidate);
  FitQuestion& question = candidate.question;
  const auto accumulated = with_accumulation(question, data_ranks_of(question));
  if (!accumulated) {
    candidate.row.reason = accumulated.error().message;
    return {};
  }
  if (data_ranks_of(question) == devices_of(question)) {
    question.grad_accum = accumulated->grad_accum;
    return {};
  }
  return question.set("grad-accum", std::to_string(accumulated->grad_accum));
}

// A way to run a step; what is empty the question says.
struct Way {
  WayToDivide division;
  std::string checkpointing;
  std::string offload;
  std::optional<Precision> precision;
};

constexpr const char* kSchedulesChosen =
    "of each pipeline that could come first by it the fastest schedule, together with its "
    "micro-batch where that is open: 1F1B and zero-bubble, either interleaved too (vpp:2, vpp:4), "
    "zbv and dualpipev (--pipeline-schedule NAME holds it still)";
constexpr const char* kHostOfFsdp1 =
    "of FSDP's first version alone it is known what the host launches too late, and in its steps: "
    "where fsdp1 is far behind fsdp2 that is why, and small kernels of other rows may be late, too";
constexpr const char* kNothingPrepared =
    "of the quantized model nothing is prepared in float32 in any row (--kbit-preparation none), "
    "since FSDP and ZeRO leave it so; on one GPU all is, unless told otherwise";

// Some ways to divide a quantized model prepare nothing of it in float32: where nobody says, none
// does, so that rows train alike.
bool is_left_unprepared(const FitQuestion& question, const WayToDivide& division) {
  return question.method == Method::qlora && !question.given.contains("kbit-preparation") &&
         !division.words.empty();
}

Result<Candidate> candidate_of(const FitQuestion& question, const Way& way) {
  const std::string trained = method_word(question);
  Candidate candidate{question, {}};
  MethodRow& row = candidate.row;
  const std::string& words = way.division.words;
  row.method = words.empty() ? trained : trained == "full" ? words : trained + "," + words;
  row.checkpointing = way.checkpointing;
  row.flags = "--method " + row.method;
  HEADROOM_TRY(candidate.question.set("method", row.method));
  if (is_left_unprepared(question, way.division)) {
    candidate.question.kbit_preparation = KbitPreparation::none;
    row.flags += " --kbit-preparation none";
  }
  if (way.division.divides_sequences) {
    HEADROOM_TRY(candidate.question.set("sequence-parallel", "true"));
    row.divides_sequences = true;
    row.flags += " --sequence-parallel true";
  }
  if (!way.checkpointing.empty()) {
    HEADROOM_TRY(candidate.question.set("checkpointing", way.checkpointing));
    if (way.checkpointing != "none") row.flags += " --checkpointing " + way.checkpointing;
  }
  if (!way.offload.empty()) {
    row.offload = way.offload;
    HEADROOM_TRY(candidate.question.set("offload", way.offload));
    row.flags += " --offload " + way.offload;
  }
  if (way.precision) {
    row.precision = way.precision;
    HEADROOM_TRY(ask_in(*way.precision, candidate.question));
    row.flags += " " + way.precision->flags();
  }
  HEADROOM_TRY(accumulate(question, candidate));
  return candidate;
}

// In each way to recompute and each precision that the question leaves open.
Result<void> add_candidates(const Scenario& scenario, const WayToDivide& division,
                            const std::string& offload, std::vector<Candidate>& candidates) {
  HEADROOM_ASSIGN(const auto precisions, precisions_of(scenario, division.words));
  for (const std::string& checkpointing : checkpointings_of(scenario.question)) {
    for (const std::optional<Precision>& precision : precisions) {
      HEADROOM_ASSIGN(Candidate candidate, candidate_of(scenario.question, {division, checkpointing,
                                                                            offload, precision}));
      candidates.push_back(std::move(candidate));
    }
  }
  return {};
}

Result<std::vector<Candidate>> candidates_of(const Scenario& scenario, int64_t gpus) {
  std::vector<Candidate> candidates;
  HEADROOM_ASSIGN(const std::vector<WayToDivide> divisions, divisions_of(scenario, gpus));
  for (const WayToDivide& division : divisions) {
    HEADROOM_TRY(add_candidates(scenario, division, "", candidates));
  }
  return candidates;
}

bool fits_for_sure(const std::vector<Candidate>& candidates) {
  return std::ranges::any_of(candidates, [](const Candidate& candidate) {
    return candidate.row.reason.empty() && candidate.row.verdict == Verdict::yes;
  });
}

// There are about as many such ways as of all others together, and of sequences that are better not
// shared none comes first.
bool may_share_sequences_beside(const std::vector<Candidate>& candidates) {
  return !fits_for_sure(candidates) ||
         std::ranges::min_element(candidates, comes_before)->question.context_ranks > 1;
}

Result<std::vector<Candidate>> shared_candidates_of(const Scenario& scenario, int64_t gpus) {
  std::vector<Candidate> candidates;
  if (scenario.traced) return candidates;
  HEADROOM_ASSIGN(const int64_t most, most_tensor_ranks(scenario, gpus));
  const FitQuestion& question = scenario.question;
  const bool is_refused =
      question.given.contains("sequence-parallel") && !question.sequence_parallel;
  for (const WayToDivide& division : shared_divisions_among(gpus, most)) {
    if (is_refused && division.divides_sequences) continue;
    HEADROOM_TRY(add_candidates(scenario, division, "", candidates));
  }
  return candidates;
}

// With the host's memory, where nothing fits without: DeepSpeed's ways to use it.
Result<std::vector<Candidate>> offloaded_candidates_of(const Scenario& scenario, int64_t gpus) {
  std::vector<Candidate> candidates;
  if (scenario.question.given.contains("offload") || scenario.traced) return candidates;
  const std::string all = ":" + std::to_string(gpus);
  struct Offloaded {
    const char* division;
    const char* offload;
  };
  for (const auto& [division, offload] :
       {Offloaded{"zero2", "optimizer"}, Offloaded{"zero3", "optimizer"},
        Offloaded{"zero3", "optimizer,parameters"}}) {
    HEADROOM_TRY(add_candidates(scenario, {division + all}, offload, candidates));
  }
  return candidates;
}

// The fastest of fully_shard's rows, which are divided as the first one of FSDP's first version is;
// PyTorch's documentation asks who uses that to consider fully_shard
// (distributed.fsdp.fully_shard).
void name_the_second_version(MethodsAnswer& answer) {
  const MethodRow& first = answer.rows.front();
  const FitQuestion& asked = first.question;
  if (asked.division != Division::fsdp1 || !first.time) return;
  const auto second = std::ranges::find_if(answer.rows, [&](const MethodRow& row) {
    return row.question.division == Division::fsdp2 && row.reason.empty() &&
           row.verdict == first.verdict && row.time && row.question.ranks == asked.ranks &&
           row.question.replicas == asked.replicas;
  });
  if (second == answer.rows.end()) return;
  const double longer = second->time->step_seconds.expected / first.time->step_seconds.expected - 1;
  answer.notes.push_back(
      "PyTorch asks who uses FSDP's first version to consider the second: " + second->flags +
      " takes " + text::formatted("%.1f %%", 100 * longer) + " longer here");
}

// Why the others are not first, and what the order is.
void explain(MethodsAnswer& answer) {
  const bool has_offloaded =
      std::ranges::any_of(answer.rows, [](const MethodRow& row) { return !row.offload.empty(); });
  if (answer.verdict() == Verdict::no && has_offloaded) {
    answer.notes.emplace_back(
        "with masters, states and parameters in the host's memory (DeepSpeed's offload_optimizer "
        "and offload_param) it does not fit either, as the rows say");
  }
  explain_order(answer.rows);
  const std::optional<StepTime>& first = answer.rows.front().time;
  const bool has_host = std::ranges::any_of(
      answer.rows, [](const MethodRow& row) { return row.time && row.time->host_seconds > 0; });
  if (has_host) answer.notes.emplace_back(kHostOfFsdp1);
  name_the_second_version(answer);
  if (answer.verdict() != Verdict::no && !answer.rows.front().offload.empty()) {
    answer.notes.emplace_back(
        "no way fits for sure in the GPUs' memory alone; this one keeps a part of the state in the "
        "host's, and nothing says how fast the host steps the optimizer and sends what it holds");
    return;
  }
  if (!first) {
    answer.notes.emplace_back(
        "no step time could be predicted; the order is what fits, recomputes less, sends less; "
        "then DDP before ZeRO before FSDP");
    return;
  }
  answer.notes.emplace_back(
      "step times are of the GPUs alone, by laws of kernels that ran elsewhere; docs/measurements "
      "says how far they are off");
}

// It would change nothing where no way shares experts out.
Result<void> check_imbalance(const FitQuestion& question, const std::vector<MethodRow>& rows) {
  const auto shares_experts = [](const MethodRow& row) {
    return row.method.find("ep:") != std::string::npos;
  };
  if (!question.given.contains("expert-imbalance") || std::ranges::any_of(rows, shares_experts)) {
    return {};
  }
  return contradiction("expert-imbalance", "no way to divide this model shares experts out",
                       "leave it out");
}

Searched searched_by(const SearchState& state) {
  return {.settings = state.predicted + state.passed_over,
          .predicted = state.predicted,
          .beaten = state.beaten,
          .refused = state.passed_over - state.beaten};
}

// The batch of a search's answer is its first row's.
void add_batch_search(MethodsAnswer& answer) {
  const MethodRow& first = answer.rows.front();
  if (first.reason.empty()) {
    answer.batch = first.batch;
    answer.grad_accum = first.grad_accum;
  }
  answer.notes.emplace_back(
      "of each way the fastest micro-batch that fits for sure, of all that divide the global batch "
      "(--batch N holds it still)");
}

}  // namespace

Result<void> describe(const Scenario& scenario, const StepTimer& timer, Asked& answer) {
  answer.model = scenario.model->name;
  HEADROOM_ASSIGN(const auto step, scenario.steps->of(scenario));
  answer.parameter_count = model::parameter_count(*step->graph, false);
  answer.trainable_count = model::parameter_count(*step->graph, true);
  answer.batch = scenario.question.batch;
  if (reads_seq(scenario)) answer.seq = scenario.question.seq;
  answer.dtype = setting_of(settings_of(scenario.question), "dtype");
  answer.warnings = calibration_warnings(scenario, timer.measured_device());
  answer.warnings.insert(answer.warnings.end(), scenario.warnings.begin(), scenario.warnings.end());
  answer.assumptions = scenario.assumptions;
  return {};
}

Result<std::vector<MethodRow>> rank_methods(const Scenario& scenario, const StepTimer& timer,
                                            int64_t gpus, bool searches_within_ways,
                                            SearchCount& count) {
  HEADROOM_ASSIGN(std::vector<Candidate> candidates, candidates_of(scenario, gpus));
  const auto try_all = [&](std::vector<Candidate>& some) {
    fill_all(scenario, timer, some, count);
    if (searches_within_ways) choose_within_ways(scenario, timer, some, count);
  };
  try_all(candidates);
  // What cannot be asked of these is no way.
  const auto try_also = [&](std::vector<Candidate> more) {
    try_all(more);
    std::erase_if(more, [](const Candidate& one) { return !one.row.reason.empty(); });
    std::ranges::move(more, std::back_inserter(candidates));
  };
  if (may_share_sequences_beside(candidates)) {
    HEADROOM_ASSIGN(std::vector<Candidate> shared, shared_candidates_of(scenario, gpus));
    try_also(std::move(shared));
  }
  if (!fits_for_sure(candidates)) {
    HEADROOM_ASSIGN(std::vector<Candidate> offloaded, offloaded_candidates_of(scenario, gpus));
    try_also(std::move(offloaded));
  }
  std::ranges::stable_sort(candidates, comes_before);
  const size_t shown = searches_within_ways ? candidates.size() : 1;
  find_largest_batches(std::span(candidates).first(std::min(shown, candidates.size())), count);
  std::vector<MethodRow> rows;
  for (Candidate& candidate : candidates) {
    candidate.row.question = std::move(candidate.question);
    rows.push_back(std::move(candidate.row));
  }
  mark_frontier(rows);
  return rows;
}

Result<bool> fits_some_way(const Scenario& scenario, int64_t gpus, SearchCount& count) {
  HEADROOM_ASSIGN(std::vector<Candidate> candidates, candidates_of(scenario, gpus));
  // What recomputes most needs least, mostly.
  std::ranges::stable_sort(candidates, std::greater<>(), [](const Candidate& candidate) {
    return recomputation_of(candidate.question);
  });
  for (const Candidate& candidate : candidates) {
    const auto varied = vary(scenario, candidate.question);
    if (!varied || !candidate.row.reason.empty()) continue;  // is refused, and so fits nowhere
    const auto prediction = predict(*varied, Figures::where_it_fits);
    count.add_setting(bool(prediction));
    if (prediction && prediction->verdict == Verdict::yes) return true;
  }
  return false;
}

Result<MethodsAnswer> choose_method(const FitQuestion& asked, int64_t gpus,
                                    const SearchProgress& progress) {
  HEADROOM_ASSIGN(FitQuestion question, with_accumulation_of_a_search(asked, gpus));
  const std::optional<std::string> machines = assume_machines(gpus, question);
  HEADROOM_TRY(cluster_of(question, gpus));
  HEADROOM_ASSIGN(const StepTimer timer, StepTimer::make(question.calibration));
  HEADROOM_ASSIGN(const Scenario scenario, resolve(question));
  MethodsAnswer answer;
  SearchCount count(progress);
  HEADROOM_ASSIGN(answer.rows, rank_methods(scenario, timer, gpus, true, count));
  answer.searched = searched_by(count.state());
  if (question.timeline && answer.has_first()) {
    HEADROOM_ASSIGN(answer.first_step, step_over_time(scenario, answer.rows.front()));
  }
  HEADROOM_TRY(check_imbalance(question, answer.rows));
  HEADROOM_TRY(describe(scenario, timer, answer));
  if (machines) answer.assumptions.push_back(*machines);
  answer.device = memory_of_device(scenario);
  answer.device.count = gpus;
  answer.grad_accum = question.grad_accum;
  explain(answer);
  if (question.any_precision) answer.notes.emplace_back(kPrecisionChanges);
  const bool is_prepared_alike = std::ranges::any_of(answer.rows, [&](const MethodRow& row) {
    return row.question.kbit_preparation != question.kbit_preparation;
  });
  if (is_prepared_alike) answer.notes.emplace_back(kNothingPrepared);
  const bool has_deepspeeds_half = std::ranges::any_of(answer.rows, [](const MethodRow& row) {
    return row.reason.empty() && is_zero(row.question.division) &&
           row.question.mixed_precision != MixedPrecision::none;
  });
  if (has_deepspeeds_half) answer.notes.emplace_back(kDeepSpeedsHalf);
  if (leaves_batch_open(scenario)) add_batch_search(answer);
  const bool has_pipelines = std::ranges::any_of(answer.rows, [](const MethodRow& row) {
    return row.reason.empty() && row.method.find("pp:") != std::string::npos;
  });
  if (has_pipelines && !question.given.contains("pipeline-schedule")) {
    answer.notes.emplace_back(kSchedulesChosen);
  }
  return answer;
}

}  // namespace headroom::fit
