#include "fit/fit.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/file.h"
#include "base/parallel.h"
#include "fit/explain.h"
#include "fit/idle_settings.h"
#include "fit/measured/correction.h"
#include "fit/megatron/question.h"
#include "fit/paged_states.h"
#include "fit/prediction.h"
#include "fit/scenario/errors.h"
#include "fit/scenario/graph.h"
#include "fit/scenario/scenario.h"
#include "fit/scenario/shared_steps.h"
#include "fit/scenario/traced.h"
#include "fit/scenario/zero.h"
#include "fit/search/moves.h"
#include "fit/search/network.h"
#include "fit/search/remedies.h"
#include "fit/search/search.h"
#include "fit/stages.h"
#include "fit/step_plan.h"
#include "fit/time/pipeline_time.h"
#include "fit/time/step_timer.h"
#include "fit/unquantized.h"
#include "fit/words.h"
#include "step/events_json.h"
#include "step/transform/peft.h"
#include "step/transform/tensor_plan.h"

namespace headroom::fit {

namespace {

MemoryFigures figures_of(const Scenario& scenario, const DetailedPrediction& detail) {
  const Prediction& p = detail.prediction;
  MemoryFigures figures;
  figures.peak_allocated = p.peak_allocated;
  figures.peak_reserved = p.peak_reserved;
  figures.peak_requested = p.peak_requested;
  figures.steady_allocated = p.steady_allocated;
  figures.peak_at = peak_place(detail);
  figures.device_used = p.device_used;
  figures.breakdown = p.breakdown;
  figures.host = p.host;
  figures.allocated_provenance = provenance_of(scenario, Metric::peak_allocated);
  figures.reserved_provenance = provenance_of(scenario, Metric::peak_reserved);
  figures.device_used_provenance = provenance_of(scenario, Metric::device_used);
  return figures;
}

// In the place of what was left open under the same name, or behind the others.
void derive(std::vector<Setting>& settings, const Setting& derived) {
  const auto open = std::ranges::find(settings, derived.name, &Setting::name);
  if (open == settings.end()) {
    settings.push_back(derived);
  } else {
    *open = derived;
  }
}

// Everything that runs the model again, side by side.
Result<void> search(const Scenario& scenario, const Prediction& known, FitAnswer& answer) {
  const Searchable sizes = searchable_sizes(scenario);
  Result<Largest> batch = Largest();
  Result<Largest> sequence = Largest();
  RemedySearch remedies(scenario, known);
  for_each_in_parallel(remedies.changes(), 0, [&](size_t i) { remedies.try_change(i); });
  const size_t batches = remedies.choose_batches(scenario.question.remedy_batches);
  for_each_in_parallel(batches + 2, 0, [&](size_t i) {
    if (i == 0) {
      if (sizes.sequence) sequence = longest_sequence(scenario, known);
    } else if (i == 1) {
      if (sizes.batch) batch = largest_batch(scenario, known);
    } else {
      remedies.find_batch(i - 2);
    }
  });
  if (sizes.batch) {
    HEADROOM_ASSIGN(answer.largest_batch, std::move(batch));
  }
  if (sizes.sequence) {
    HEADROOM_ASSIGN(answer.longest_seq, std::move(sequence));
  }
  answer.remedies = std::move(remedies).found();
  return {};
}

// A group of more ranks than each has experts leaves some without a share of them, and gathers what
// fills it up.
Result<void> add_expert_notes(const Scenario& scenario, FitAnswer& answer) {
  const FitQuestion& question = scenario.question;
  if (question.expert_ranks == 1) return {};
  HEADROOM_ASSIGN(const auto step, scenario.steps->of(scenario));
  const auto experts = std::ranges::find(step->graph->parameters, model::ParameterRole::expert,
                                         &model::Parameter::role);
  const int64_t group = question.ranks / question.expert_ranks;
  if (experts == step->graph->parameters.end() || experts->shape[0] >= group) return {};
  answer.notes.push_back("the " + std::to_string(group) + " ranks that have the same " +
                         std::to_string(experts->shape[0]) +
                         " experts share them whole, so that some keep none and the fullest one, "
                         "which this is, as much as in a smaller group");
  return {};
}

// What is not as one would think of tensor parallelism.
Result<void> add_tensor_notes(const Scenario& scenario, FitAnswer& answer) {
  if (scenario.question.tensor_ranks == 1) return {};
  if (scenario.question.division == Division::gemini) {
    answer.notes.emplace_back(
        "Colossal-AI's 1D sums what every linear module answers, so that between modules all is "
        "whole on every rank: tp:N divides more and sends less");
    return {};
  }
  HEADROOM_ASSIGN(const std::string model_type, model_type_of(scenario));
  const auto plan = step::tensor_plan(model_type);
  if (plan && !plan->is_transformers) {
    answer.notes.push_back("transformers has no tp_plan for '" + model_type +
                           "': the plan is ours, and no run of it was at hand");
  }
  HEADROOM_ASSIGN(const auto step, scenario.steps->of(scenario));
  const bool splits_inputs = std::ranges::any_of(
      step->graph->operations,
      [](const auto& operation) { return operation.kind == op::OpKind::parallel_split; });
  if (splits_inputs && plan && !plan->is_transformers) {
    answer.notes.emplace_back(
        "the heads do not come out even, so attention is whole on every rank; its products are "
        "divided and put together");
  }
  // transformers' row-parallel modules ask for a whole input's size since 5.21, and peft says a
  // part's of its adapters.
  constexpr op::Version kAsksForWholeSizes{5, 21};
  const bool has_divided_inputs =
      std::ranges::any_of(step->graph->parameters, [&](const model::Parameter& parameter) {
        const step::PeftPlace place = step::peft_place(parameter);
        return place.part == step::PeftPlace::Part::lora_a && plan &&
               std::ranges::any_of(plan->rules, [&](const step::TensorRule& rule) {
                 return rule.style == step::TensorStyle::rowwise &&
                        step::names_module(std::string(rule.module), place.module);
               });
      });
  if (has_divided_inputs && scenario.build.transformers >= kAsksForWholeSizes) {
    answer.notes.emplace_back(
        "peft 0.21 with transformers since 5.21 ends with an error in the first forward pass, "
        "beside adapters of o_proj, down_proj and the like; 5.17 trains them");
  }
  const bool has_rows = std::ranges::any_of(step->graph->operations, [](const auto& operation) {
    return operation.kind == op::OpKind::parallel_embedding &&
           operation.attributes.ints[1] == static_cast<int64_t>(op::RowsGradient::whole);
  });
  if (has_rows && scenario.question.method == Method::full) {
    answer.notes.emplace_back(
        "the embedding's gradient is whole on every rank, as DTensor makes it of a part of the "
        "rows");
  }
  return {};
}

void add_pipeline_notes(const Scenario& scenario, FitAnswer& answer) {
  const FitQuestion& question = scenario.question;
  answer.notes.emplace_back(
      std::string(question.stage_layers.empty()
                      ? "layers are shared out among stages as torchtitan does it, embedding and "
                        "head counting as one each; "
                      : "") +
      "stages are told of their inputs (PipelineStage's input_args), else the first step has a "
      "pass each way more");
  if (!question.given.contains("grad-accum") && !question.global_batch) {
    answer.notes.push_back(std::to_string(question.grad_accum) + " micro-batches a step, " +
                           (question.grad_accum > question.stages ? "twice " : "") +
                           "as many as stages (--grad-accum)");
  }
  if (!scenario.train.keep_outputs) {
    answer.notes.emplace_back(
        "the schedule returns no outputs (step(..., return_outputs=False)); with --keep-outputs "
        "true the stage with the head holds the logits of all micro-batches");
  }
  if (question.schedule == step::PipelineSchedule::zero_bubble) {
    answer.notes.emplace_back(
        "of a micro-batch's time forward, gradients of inputs and of weights are taken to be a "
        "third each: a third of 1F1B's waiting is left");
  }
  if (step::is_mirrored(question.schedule)) {
    answer.notes.emplace_back(
        "what stages wait comes of running their orders, where each part of the model takes half "
        "of a micro-batch's time on its stage, and forward, gradients of inputs and of weights a "
        "third of that each");
  }
  const bool gathers_chunks =
      question.division == Division::fsdp2 && !scenario.train.pipeline.is_single();
  constexpr op::Version kChunksAreKnown{2, 11};
  if (gathers_chunks && scenario.train.environment.torch < kChunksAreKnown) {
    answer.notes.emplace_back(
        "when schedules gather and let go of chunks is taken as in PyTorch 2.11; earlier ones were "
        "not read");
  }
  if (question.method == Method::qlora) {
    answer.notes.emplace_back(
        "QLoRA in stages is put together of weights of four bits and of stages; no run of both was "
        "at hand");
  }
}

// Where parameters are shared out, those of four bits are if their bytes pass for elements of the
// model's type: accelerate's fsdp2_prepare_model (1.15), peft's guides of FSDP and of ZeRO.
void add_storage_note(const FitQuestion& question, FitAnswer& answer) {
  const bool is_shared = is_fsdp(question.division) || question.division == Division::zero3;
  if (question.method != Method::qlora || !is_shared) return;
  answer.notes.push_back(
      std::string("four-bit weights are taken to be stored in the model's type "
                  "(bnb_4bit_quant_storage); in the default, uint8, ") +
      (question.division == Division::fsdp1 ? "FSDP refuses them"
       : question.division == Division::fsdp2
           ? "accelerate keeps them whole on every rank (1.15, with PyTorch since 2.7)"
           : "DeepSpeed shares them out, too, and counts twice as many elements: of what persists "
             "and of what is gathered ahead"));
}

void add_division_notes(const FitQuestion& question, FitAnswer& answer) {
  if (question.division == Division::none && question.stages == 1) return;
  add_storage_note(question, answer);
  if (is_zero(question.division) && question.mixed_precision != MixedPrecision::none) {
    answer.notes.emplace_back(kDeepSpeedsHalf);
  }
  if (question.context_ranks > 1 && question.method != Method::full) {
    answer.notes.emplace_back(
        "adapters beside sequences that ranks share are put together of the two; no run of both "
        "was at hand");
  }
  if (question.expert_ranks > 1) {
    answer.notes.emplace_back(
        "in each layer with experts the host waits for how many rows come, and ranks for the "
        "fullest of them, which is not in the step time");
  }
  if (question.expert_ranks > 1 && question.mixed_precision != MixedPrecision::none) {
    answer.notes.emplace_back(
        "mixed precision is fully_shard's alone, reduced in float32 "
        "(DistributedConfig(fsdp_mixed_precision=True)), without autocast");
  }
  if (!is_fsdp(question.division)) {
    const int64_t others = communicators_of(question).others;
    answer.notes.push_back("what the device shows is as measured on one GPU, and " +
                           (others == 0 ? std::string("a communicator")
                                        : std::to_string(1 + others) + " communicators") +
                           " more; no run under this method was at hand");
    return;
  }
  if (question.division == Division::fsdp2) {
    answer.notes.push_back(
        "what the device shows is as measured of FSDP's first version; no run of the second was at "
        "hand");
  }
}

// Nothing, and a note says why, where a stage has none.
void add_time_of_stages(const Scenario& scenario, FitAnswer& answer) {
  answer.time = pipeline_time(answer.stages, scenario.train.pipeline);
  const auto untimed = std::ranges::find_if(
      answer.stages, [](const StageFigures& stage) { return !stage.time.has_value(); });
  if (untimed == answer.stages.end()) return;
  answer.notes.push_back("no step time: of stage " + std::to_string(untimed->stage) + ", " +
                         untimed->untimed);
}

// A device whose figures are not all known has no time; where machines are said wrongly, that is an
// error.
Result<void> add_time(const Scenario& scenario, const step::StepTrace& trace,
                      const StepTimer& timer, FitAnswer& answer) {
  HEADROOM_TRY(cluster_of(scenario.question, devices_of(scenario.question)));
  if (!answer.stages.empty()) {
    add_time_of_stages(scenario, answer);
  } else if (auto time = timer.time_of(scenario, trace)) {
    answer.time = std::move(*time);
  } else {
    answer.notes.push_back("no step time: " + time.error().message);
  }
  if (scenario.question.megatron && answer.time) {
    answer.notes.push_back(megatron_time_note(timer, scenario));
  }
  const bool has_host = scenario.question.division == Division::fsdp1;
  if (answer.time && is_divided(scenario.question) && !has_host && !scenario.question.megatron) {
    answer.notes.emplace_back(
        "the step time is of the GPUs alone: small work that the host launches too late is slower "
        "(of FSDP's first version alone the host is known)");
  }
  return {};
}

// Of the whole model, of which a stage, a tensor parallel rank or one with some of the experts has
// a part: by its graph alone, since no step of it is run.
Result<void> add_parameters(const Scenario& scenario, FitAnswer& answer) {
  HEADROOM_ASSIGN(Scenario undivided, vary(scenario, without_stages(scenario.question)));
  undivided.question.tensor_ranks = 1;
  undivided.question.expert_ranks = undivided.build.expert_ranks = 1;
  HEADROOM_ASSIGN(GraphPointer built, built_graph_of(undivided));
  HEADROOM_ASSIGN(const GraphPointer graph, graph_of(undivided, std::move(built)));
  answer.parameter_count = model::parameter_count(*graph, false);
  answer.trainable_count = model::parameter_count(*graph, true);
  const bool is_tied = scenario.question.stages > 1 &&
                       std::ranges::any_of(graph->parameters, [](const model::Parameter& p) {
                         return p.tied_to.has_value();
                       });
  if (is_tied) {
    answer.notes.emplace_back(
        "embedding and head share a weight in the model and cannot between stages: the last one "
        "has a copy of its own, which nothing of torch.distributed.pipelining keeps like the "
        "first's");
  }
  return {};
}

Result<void> add_megatron(const FitQuestion& question, FitAnswer& answer) {
  HEADROOM_ASSIGN(answer.parameter_count, megatron_parameters(*question.megatron));
  answer.trainable_count = answer.parameter_count;
  answer.settings = megatron_settings(question);
  for (std::string& note : megatron_notes(question)) {
    answer.notes.push_back(std::move(note));
  }
  return {};
}

// A search has settings of both kinds, one setting is of one.
Result<void> check_imbalance(const FitQuestion& question) {
  if (!question.given.contains("expert-imbalance")) return {};
  if (question.expert_ranks > 1) return {};
  if (question.megatron && question.megatron->routes_among_ranks()) return {};
  if (question.megatron && question.megatron->stage.model.fills_capacity) {
    return contradiction("expert-imbalance",
                         "each expert gets as many tokens as it has room for "
                         "(--moe-pad-expert-input-to-capacity)",
                         "leave one of them out");
  }
  return contradiction("expert-imbalance", "a rank has all experts, and gets all their tokens",
                       "leave it out, or divide the experts among ranks: --method fsdp2:M,ep:N");
}

// So of precision.
Result<void> check_precision(const FitQuestion& question) {
  if (!question.any_precision) return {};
  return contradiction(
      "mixed-precision", "any is for a search, and one setting has one precision",
      "headroom fit MODEL with --gpus N or --smallest, without a division; or say none, "
      "bf16 or fp16");
}

// Beside the one figure, which all others of the answer go with.
Result<void> add_peak_interval(const Scenario& scenario, Bytes expected, FitAnswer& answer) {
  HEADROOM_ASSIGN(answer.memory.peak_allocated_interval, peak_by_imbalance(scenario, expected));
  if (!answer.memory.peak_allocated_interval) return {};
  const ExpertImbalance& imbalance = scenario.question.expert_imbalance;
  answer.notes.push_back("the peak is also said for experts that get " +
                         number_words(imbalance.low) + " and " + number_words(imbalance.high) +
                         " of an even share; all else is at " + number_words(imbalance.expected));
  return {};
}

std::string note_on_plan(const Prediction& p) {
  const double above = static_cast<double>((p.peak_reserved - p.peak_allocated).count) /
                       static_cast<double>(std::max<int64_t>(1, p.peak_allocated.count));
  char gap[32];
  std::snprintf(gap, sizeof gap, "%.2f", 100 * above);
  return std::string("reserved is a plan made from this very step, ") + gap +
         " % above what lives at one moment; weights and states lie apart, beneath the rest";
}

// A class is found from a sequence's last token that is no padding, and the config says of none
// what that is.
bool reads_last_token(const Scenario& scenario) {
  const auto family = model::find_family(scenario.model->view(), {scenario.question.assume});
  constexpr int64_t kMost = int64_t{1} << 40;
  const auto padding = scenario.model->view().optional_int("pad_token_id", -1, kMost);
  return family && (*family)->task == model::Task::causal_lm && padding && !*padding;
}

// Of parameters that a step leaves without a gradient.
void add_idle_notes(Division division, FitAnswer& answer) {
  if (division == Division::ddp) {
    answer.notes.emplace_back(
        "some parameters get no gradient: PyTorch's DDP ends with an error unless it is given "
        "find_unused_parameters=True");
  }
  if (is_fsdp(division)) {
    answer.notes.emplace_back(
        "parameters that a step never reads are taken to be gathered with the outermost unit; "
        "those wrapped by themselves never are");
  }
}

// What is assumed, set in vain, or to be known of the figures.
Result<void> add_notes(const FitQuestion& question, const Scenario& scenario, const Prediction& p,
                       std::string_view measured_device, FitAnswer& answer) {
  if (scenario.task != model::Task::causal_lm) {
    answer.notes.push_back(answer.model + ": " + std::string(meaning_of_seq(scenario.task)));
  }
  if (scenario.build.classes && question.batch > 1 && reads_last_token(scenario)) {
    answer.notes.emplace_back(
        "the config names no padding token, which is taken to be set (pad_token_id): without one "
        "transformers takes one sequence at a time");
  }
  if (!scenario.assumes.empty()) answer.notes.emplace_back(scenario.assumes);
  if (scenario.leaves_parameters_idle) add_idle_notes(question.division, answer);
  if (scenario.planned) answer.notes.push_back(note_on_plan(p));
  HEADROOM_TRY(add_tensor_notes(scenario, answer));
  HEADROOM_TRY(add_expert_notes(scenario, answer));
  add_division_notes(question, answer);
  if (question.stages > 1) add_pipeline_notes(scenario, answer);
  if (question.method == Method::lora_8bit) {
    answer.notes.emplace_back(
        "no column of a product's input is taken to have a value of 6 or more "
        "(llm_int8_threshold), "
        "which is a matter of data: such columns are kept a second time until backward, and "
        "multiplied in the input's type");
  }
  if (has_bitsandbytes_base(question)) {
    HEADROOM_ASSIGN(const auto step, scenario.steps->of(scenario));
    std::string note = note_on_unquantized_experts(scenario, *step->graph);
    if (!note.empty()) answer.notes.push_back(std::move(note));
  }
  if (scenario.train.optimizer.bitsandbytes.is_paged) {
    HEADROOM_ASSIGN(const auto step, scenario.steps->of(scenario));
    std::string note = note_on_paged_states(scenario, *step->graph);
    if (!note.empty()) answer.notes.push_back(std::move(note));
  }
  if (!question.lora_targets.empty()) {
    HEADROOM_ASSIGN(const auto step, scenario.steps->of(scenario));
    std::string note = note_on_adapted_experts(scenario, *step->graph);
    if (!note.empty()) answer.warnings.push_back(std::move(note));
  }
  for (std::string& sentence : idle_settings(question)) answer.notes.push_back(std::move(sentence));
  for (std::string& sentence : calibration_warnings(scenario, measured_device)) {
    answer.warnings.push_back(std::move(sentence));
  }
  answer.warnings.insert(answer.warnings.end(), scenario.warnings.begin(), scenario.warnings.end());
  if (!scenario.beyond_positions.empty()) answer.warnings.push_back(scenario.beyond_positions);
  if (scenario.traced) add_trace_notes(scenario, answer);
  return {};
}

// What an answer begins with.
struct Begun {
  Scenario scenario;
  DetailedPrediction detail;
  StepTimer timer;
  std::vector<StageFigures> stages;  // of a pipeline, whose fullest one the scenario is
};

Result<DetailedPrediction> predict_for(const Scenario& scenario) {
  return predict_in_detail(scenario, scenario.question.timeline ? kTimelinePoints : 0);
}

// The laws are read while the step is made.
Result<Begun> begin_one(const FitQuestion& question) {
  std::optional<Result<Scenario>> scenario;
  std::optional<Result<DetailedPrediction>> detail;
  std::optional<Result<StepTimer>> timer;
  for_each_in_parallel(2, 0, [&](size_t i) {
    if (i == 1) {
      timer = StepTimer::make(question.calibration);
      return;
    }
    scenario = resolve(question);
    if (*scenario) detail = predict_for(**scenario);
  });
  if (!*scenario) return scenario->error();
  if (!*detail) return detail->error();
  if (!*timer) return timer->error();
  return Begun{std::move(**scenario), std::move(**detail), std::move(**timer), {}};
}

// The fullest stage is answered for; what was predicted of it among the others is kept, unless a
// timeline is wanted, which takes a replay of its own.
Result<Begun> begin_pipeline(const FitQuestion& question) {
  std::optional<Result<Scenario>> any;
  std::optional<Result<StepTimer>> timer;
  for_each_in_parallel(2, 0, [&](size_t i) {
    if (i == 0) any = resolve(question);
    if (i == 1) timer = StepTimer::make(question.calibration);
  });
  if (!*timer) return timer->error();
  if (!*any) return any->error();
  DetailedPrediction detail;
  HEADROOM_ASSIGN(std::vector<StageFigures> stages,
                  stages_of(**any, **timer, {.known = {}, .fullest = &detail}));
  HEADROOM_ASSIGN(Scenario scenario, vary(**any, at_stage(question, fullest_stage(stages))));
  if (question.timeline) {
    HEADROOM_ASSIGN(detail, predict_for(scenario));
  } else {
    add_oom_probability(scenario, detail);
  }
  return Begun{std::move(scenario), std::move(detail), std::move(**timer), std::move(stages)};
}

Result<Begun> begin(const FitQuestion& question) {
  return stage_count(question) > 1 ? begin_pipeline(question) : begin_one(question);
}

}  // namespace

Result<FitAnswer> answer(const FitQuestion& asked) {
  HEADROOM_ASSIGN(FitQuestion question, with_accumulation(asked, data_ranks_of(asked)));
  // What a file of Megatron-LM's gives torchrun may say otherwise.
  const auto machines =
      question.megatron ? std::nullopt : assume_machines(devices_of(question), question);
  HEADROOM_TRY(check_imbalance(question));
  HEADROOM_TRY(check_precision(question));
  HEADROOM_ASSIGN(const Begun begun, begin(question));
  const Scenario& scenario = begun.scenario;
  const DetailedPrediction& detail = begun.detail;
  const StepTimer& timer = begun.timer;
  const Prediction& p = detail.prediction;

  FitAnswer answer;
  answer.stages = begun.stages;
  answer.model = scenario.model->name;
  answer.parameter_count = p.parameter_count;
  answer.trainable_count = p.trainable_count;
  answer.device = memory_of_device(scenario);
  answer.settings = scenario.traced ? settings_of_trace(scenario) : settings_of(question);
  for (const Setting& setting : scenario.derived) derive(answer.settings, setting);
  if (question.megatron) HEADROOM_TRY(add_megatron(scenario.question, answer));
  const bool has_a_part =
      question.stages > 1 || question.tensor_ranks > 1 || question.expert_ranks > 1;
  if (has_a_part && !question.megatron) HEADROOM_TRY(add_parameters(scenario, answer));
  if (!reads_seq(scenario)) {
    std::erase_if(answer.settings, [](const Setting& setting) { return setting.name == "seq"; });
  }
  answer.verdict = p.verdict;
  answer.room = room_within(scenario, p.device_used);
  answer.oom_probability = p.oom_probability;
  answer.memory = figures_of(scenario, detail);
  HEADROOM_TRY(add_peak_interval(scenario, p.peak_allocated, answer));
  answer.assumptions = scenario.assumptions;
  if (machines) answer.assumptions.push_back(*machines);
  HEADROOM_TRY(add_notes(question, scenario, p, timer.measured_device(), answer));
  if (p.cache_flushes > 0) {
    answer.warnings.push_back("the allocator has to empty its cache " +
                              std::to_string(p.cache_flushes) +
                              " times to go on; such steps are slow");
  }
  HEADROOM_TRY(add_time(scenario, detail.trace, timer, answer));
  if (question.search) {
    HEADROOM_TRY(search(scenario, p, answer));
    if (answer.stages.size() > 1) {
      answer.moves = pipeline_moves(scenario, timer, answer.stages);
    }
  }
  if (question.timeline) answer.timeline = timeline_of(detail);
  if (!question.events.empty()) {
    HEADROOM_TRY(write_file_atomic(question.events, step::events_json(detail.trace).dump() + "\n"));
  }
  if (!question.placements.empty()) {
    HEADROOM_ASSIGN(const std::string table, placements_of(detail.trace));
    HEADROOM_TRY(write_file_atomic(question.placements, table));
  }
  return answer;
}

}  // namespace headroom::fit
