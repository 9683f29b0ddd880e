#include "fit/megatron/choice.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "fit/measured/correction.h"
#include "fit/megatron/bounds.h"
#include "fit/megatron/file.h"
#include "fit/megatron/model.h"
#include "fit/megatron/question.h"
#include "fit/prediction.h"
#include "fit/search/network.h"
#include "model/builtin.h"

namespace headroom::fit {

namespace {

constexpr size_t kMostTooFast = 4;  // rows of what is faster and does not fit
constexpr std::string_view kFp8Changes =
    "fp8 changes what is trained: products read operands of eight bits, scaled by the largest "
    "values of steps before (--fp8-format hybrid, delayed scaling); weights, gradients and states "
    "keep their types, and each weight is kept in FP8 besides";

// Its tensor and expert parallel ranks stay within machines, which so are to come out even.
Result<void> assume_machines(int64_t gpus, MegatronModel& model) {
  const bool is_said = model.question.given.contains("nodes");
  if (!is_said && gpus > kMachine && gpus % kMachine != 0) {
    return Error{ErrorCode::usage,
                 std::to_string(gpus) + " GPUs are no whole number of machines of eight", "--gpus",
                 "--nodes N --link ib-400g says how many machines there are"};
  }
  auto words = assume_machines(gpus, model.question);
  if (words) model.assumptions.push_back(std::move(*words));
  return {};
}

// Of the stages that fit least the one that shows most of its device.
int64_t deciding_stage(const std::vector<StageFigures>& stages) {
  return std::ranges::max_element(stages, {},
                                  [](const StageFigures& stage) {
                                    return std::tuple(rank_of(stage.verdict),
                                                      stage.device_used.expected.count,
                                                      stage.peak_allocated.count);
                                  })
      ->stage;
}

// The figures of the stage that decides, and the step's time.
Result<MethodRow> row_of(const Scenario& any, const FitQuestion& question,
                         const MegatronDivision& division, const MegatronOutcome& outcome) {
  FitQuestion asked = question;
  const int64_t stage = deciding_stage(outcome.stages);
  asked.megatron->look_at(stage);
  HEADROOM_ASSIGN(const Scenario scenario, vary(any, asked));
  HEADROOM_ASSIGN(const DetailedPrediction detail, predict_in_detail(scenario, 0));
  MethodRow row;
  row.question = question;
  row.method = division_words(division);
  row.flags = flags_of(division);
  row.checkpointing = checkpointing_of(division);
  take_prediction(scenario, detail, row);
  name_stage(stage, static_cast<int64_t>(outcome.stages.size()), row);
  row.sent = sent_in(scenario, detail.trace);
  row.time = outcome.time;
  return row;
}

// Those that were found, then what is faster and does not fit.
Result<std::vector<MethodRow>> rows_of(const Scenario& any, const StepTimer& timer,
                                       const MegatronQuestions& questions,
                                       const MegatronSearch& search) {
  std::vector<MethodRow> rows;
  for (const MegatronFound& found : search.found()) {
    HEADROOM_ASSIGN(const FitQuestion question, questions(found.division));
    HEADROOM_ASSIGN(MethodRow row, row_of(any, question, found.division, found.outcome));
    rows.push_back(std::move(row));
  }
  for (const MegatronDivision& division : search.too_fast(kMostTooFast)) {
    HEADROOM_ASSIGN(const FitQuestion question, questions(division));
    const auto outcome = predict_megatron(any, timer, question);
    if (!outcome) continue;  // beyond what bytes are counted in, say
    HEADROOM_ASSIGN(MethodRow row, row_of(any, question, division, *outcome));
    rows.push_back(std::move(row));
  }
  mark_frontier(rows);
  explain_order(rows);
  return rows;
}

bool has_fp8(const Scenario& scenario) {
  return scenario.device->vendor == device::Vendor::nvidia &&
         op::multiplies_fp8(MegatronDivision{.fp8 = true}.fp8_recipe(),
                            scenario.train.environment.compute_capability);
}

Result<std::vector<MegatronDivision>> divisions_of(const MegatronModel& model, int64_t gpus,
                                                   bool any_precision) {
  HEADROOM_ASSIGN(const timing::Cluster cluster, cluster_of(model.question, gpus));
  DivisionsAsked asked{.gpus = gpus, .devices_per_node = cluster.devices_per_node};
  asked.any_precision = any_precision;
  if (model.question.given.contains("batch")) asked.micro_batch = model.question.batch;
  if (model.question.given.contains("checkpointing")) {
    asked.recomputation = model.question.checkpointing.kind;
  }
  std::vector<MegatronDivision> divisions = megatron_divisions(model.model, asked);
  if (!divisions.empty()) return divisions;
  return Error{ErrorCode::usage,
               "no division of the step among " + std::to_string(gpus) + " GPUs comes out even",
               "--global-batch", "a multiple of the GPUs always does"};
}

Result<void> describe(const MegatronModel& model, const Scenario& scenario, const StepTimer& timer,
                      Asked& answer) {
  answer.model = scenario.model->name;
  HEADROOM_ASSIGN(answer.parameter_count, megatron_parameters(*scenario.question.megatron));
  answer.trainable_count = answer.parameter_count;
  answer.batch = scenario.question.batch;
  answer.seq = scenario.question.seq;
  answer.dtype = model.model.type;
  answer.notes = megatron_notes(scenario.question);
  answer.notes.push_back(megatron_time_note(timer, scenario));
  if (model.question.any_precision) {
    answer.notes.push_back(has_fp8(scenario) ? std::string(kFp8Changes)
                                             : scenario.device->name +
                                                   " has no products in FP8: settings are in " +
                                                   model.model.type + " alone");
  }
  answer.warnings = calibration_warnings(scenario, timer.measured_device());
  for (const auto* warnings : {&scenario.warnings, &model.warnings}) {
    answer.warnings.insert(answer.warnings.end(), warnings->begin(), warnings->end());
  }
  answer.assumptions = model.assumptions;
  return {};
}

}  // namespace

Result<MegatronModel> megatron_model(FitQuestion question, std::optional<int64_t> gpus) {
  MegatronModel model;
  HEADROOM_ASSIGN(const model::ResolvedModel found, model::resolve_model(question.model));
  HEADROOM_ASSIGN(MegatronDescription described, describe_for_megatron(found.view(), question));
  question.model = found.name;
  model.model = std::move(described.arguments);
  model.model.global_batch = std::exchange(question.global_batch, std::nullopt);
  model.warnings = std::move(described.warnings);
  model.question = std::move(question);
  if (gpus) HEADROOM_TRY(assume_machines(*gpus, model));
  return model;
}

engines::MegatronArguments setting_arguments(const MegatronModel& model,
                                             const MegatronDivision& division) {
  return divided(model.model, division);
}

Result<FitQuestion> setting_question(const MegatronModel& model, const MegatronDivision& division) {
  const bool shares_experts = division.expert > 1 || division.expert_tensor != division.tensor;
  if (model.model.experts == 0 && shares_experts) {
    return Error{ErrorCode::usage, "the model has no experts", "--method",
                 "leave ep: and etp: out"};
  }
  FitQuestion question = model.question;
  // The division says them, and comes before what stood for all.
  question.given.erase("batch");
  question.given.erase("checkpointing");
  question.any_precision = false;
  return megatron_question(std::move(question), setting_arguments(model, division),
                           model.question.model, division.gpus());
}

Result<Emitted> emit_setting(const MegatronModel& model, const MegatronDivision& division,
                             const EmitRequest& request) {
  HEADROOM_ASSIGN(const FitQuestion question, setting_question(model, division));
  HEADROOM_ASSIGN(Emitted emitted,
                  emit_megatron(question, setting_arguments(model, division), request));
  emitted.notes.emplace_back(
      "a config.json says nothing of data and schedule: behind the script's name come "
      "--tokenizer-type, --data-path, --train-iters, --lr");
  return emitted;
}

Result<MegatronChoice> choose_megatron(const MegatronModel& model, int64_t gpus,
                                       const SearchProgress& progress) {
  HEADROOM_ASSIGN(std::vector<MegatronDivision> divisions, divisions_of(model, gpus, false));
  HEADROOM_ASSIGN(const StepTimer timer, StepTimer::make(model.question.calibration));
  const MegatronQuestions questions = [&](const MegatronDivision& division) {
    return setting_question(model, division);
  };
  HEADROOM_ASSIGN(const FitQuestion some, questions(divisions.front()));
  HEADROOM_ASSIGN(const Scenario any, resolve(some));
  if (model.question.any_precision && has_fp8(any)) {
    HEADROOM_ASSIGN(divisions, divisions_of(model, gpus, true));
  }
  const MegatronBounds bounds = MegatronBounds::make(any, timer, model.model, divisions, progress);
  MegatronSearch search(any, timer, questions, bounds, divisions);
  HEADROOM_TRY(search.run(progress));
  MegatronChoice choice;
  choice.first = search.found().front().division;
  MethodsAnswer& answer = choice.answer;
  HEADROOM_ASSIGN(answer.rows, rows_of(any, timer, questions, search));
  if (model.question.timeline) {
    HEADROOM_ASSIGN(answer.first_step, step_over_time(any, answer.rows.front()));
  }
  HEADROOM_ASSIGN(const FitQuestion first, questions(choice.first));
  HEADROOM_ASSIGN(const Scenario scenario, vary(any, first));
  HEADROOM_TRY(describe(model, scenario, timer, answer));
  answer.device = memory_of_device(scenario);
  answer.grad_accum = first.grad_accum;
  answer.searched = search.counts();
  answer.is_selection = true;
  return choice;
}

}  // namespace headroom::fit
