#include "fit/scenario/scenario.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/parallel.h"
#include "device/blas_workspace.h"
#include "fit/config_types.h"
#include "fit/device/device_used.h"
#include "fit/measured/calibration_file.h"
#include "fit/megatron/scenario.h"
#include "fit/positions.h"
#include "fit/scenario/parts.h"
#include "fit/scenario/pipeline.h"
#include "fit/scenario/shared_steps.h"
#include "fit/scenario/traced.h"
#include "fit/scenario/zero.h"
#include "timing/calibration.h"

namespace headroom::fit {

namespace {

// "2.13", "2.4.1+cu121", "4.48.1": what comes after the second number changes nothing here.
Result<op::Version> parse_version(const std::string& text, const char* flag) {
  op::Version version;
  const char* end = text.data() + text.size();
  const auto major = std::from_chars(text.data(), end, version.major);
  const bool has_minor = major.ec == std::errc() && major.ptr != end && *major.ptr == '.';
  if (has_minor) {
    const auto minor = std::from_chars(major.ptr + 1, end, version.minor);
    if (minor.ec == std::errc() && version.major < 1000 && version.minor < 1000) return version;
  }
  return Error{ErrorCode::usage, "'" + text + "' is not a version", flag, "like 2.8 or 4.56.1"};
}

// Versions that are modelled: of the same series, a later one behaves as the newest of these does,
// as far as anybody knows, and the answer says so.
struct KnownVersions {
  const char* name;
  const char* flag;
  op::Version oldest;
  op::Version newest;
};
constexpr KnownVersions kTorch{"PyTorch", "--torch", {1, 13}, {2, 13}};
constexpr KnownVersions kTransformers{"transformers", "--transformers", {4, 0}, {5, 23}};

std::string words_of(op::Version version) {
  return std::to_string(version.major) + "." + std::to_string(version.minor);
}

Result<op::Version> known_version(const std::string& text, const KnownVersions& known,
                                  std::vector<std::string>& warnings) {
  HEADROOM_ASSIGN(const op::Version version, parse_version(text, known.flag));
  if (version < known.oldest || version.major > known.newest.major) {
    return Error{ErrorCode::usage,
                 std::string(known.name) + " " + words_of(version) + " is not modelled", known.flag,
                 words_of(known.oldest) + " to " + words_of(known.newest) + " are"};
  }
  if (version > known.newest) {
    warnings.push_back(std::string(known.name) + " " + words_of(version) +
                       " is newer than what is modelled, and is taken to be like " +
                       words_of(known.newest));
  }
  return version;
}

Result<std::shared_ptr<const model::ResolvedModel>> load_model(const FitQuestion& question) {
  HEADROOM_ASSIGN(model::ResolvedModel found, model::resolve_model(question.model));
  return std::shared_ptr<const model::ResolvedModel>(
      std::make_shared<model::ResolvedModel>(std::move(found)));
}

Result<std::shared_ptr<const device::Device>> load_device(const FitQuestion& question) {
  HEADROOM_ASSIGN(const auto catalogue, catalogue_with(question.calibration));
  HEADROOM_ASSIGN(device::Device device, catalogue.find(question.device));
  return std::shared_ptr<const device::Device>(std::make_shared<device::Device>(std::move(device)));
}

// Both tables are read whole, side by side; a device that is there already is not looked for.
Result<void> load_model_and_device(Scenario& s) {
  using Model = std::shared_ptr<const model::ResolvedModel>;
  using Device = std::shared_ptr<const device::Device>;
  std::optional<Result<Model>> model;
  std::optional<Result<Device>> device;
  if (s.question.megatron) {
    if (!s.device) {
      HEADROOM_ASSIGN(s.device, load_device(s.question));
    }
    auto named = std::make_shared<model::ResolvedModel>();
    named->name = s.question.model;
    s.model = std::move(named);
    return {};
  }
  const bool is_traced = model::is_python_function(s.question.model);
  for_each_in_parallel(is_traced ? 1 : 2, 0, [&](size_t i) {
    if (i == 0) {
      device = s.device ? Result<Device>(s.device) : load_device(s.question);
    } else {
      model = load_model(s.question);
    }
  });
  HEADROOM_ASSIGN(s.device, std::move(*device));
  if (model) {
    HEADROOM_ASSIGN(s.model, std::move(*model));
  }
  return {};
}

model::Attention attention_of(Attention attention) {
  switch (attention) {
    case Attention::eager:
      return model::Attention::eager;
    case Attention::flash2:
      return model::Attention::flash_attention_2;
    default:
      return model::Attention::sdpa;
  }
}

// The workspaces that matrix products take, by the device's generation and torch's version.
op::BlasWorkspaces workspaces_of(const device::Device& device, op::Version torch) {
  const device::BlasWorkspace blas = device::blas_workspace(device, {torch.major, torch.minor});
  op::BlasWorkspaces workspaces;
  workspaces.main_bytes = blas.main.count;
  workspaces.lt_bytes = blas.lt.count;
  switch (blas.lt_kind) {
    case device::BlasWorkspace::Lt::temporary:
      workspaces.lt = op::BlasWorkspaces::Lt::temporary;
      break;
    case device::BlasWorkspace::Lt::persistent:
      workspaces.lt = op::BlasWorkspaces::Lt::persistent;
      break;
    case device::BlasWorkspace::Lt::shared:
      workspaces.lt = op::BlasWorkspaces::Lt::shared;
      break;
  }
  return workspaces;
}

Result<void> set_versions(Scenario& s) {
  HEADROOM_ASSIGN(s.train.environment.torch, known_version(s.question.torch, kTorch, s.warnings));
  HEADROOM_ASSIGN(s.build.transformers,
                  known_version(s.question.transformers, kTransformers, s.warnings));
  const device::ComputeCapability capability = s.device->compute_capability.value;
  s.train.environment.compute_capability = capability.major * 10 + capability.minor;
  s.train.environment.blas = workspaces_of(*s.device, s.train.environment.torch);
  if (s.device->sm_count.known()) {
    s.train.environment.multiprocessors = static_cast<int>(s.device->sm_count.value);
  }
  return {};
}

void set_build(Scenario& s) {
  s.build.batch = s.question.batch;
  s.build.sequence = part_of_sequence(s.question);
  s.build.decoder_sequence = s.question.decoder_seq;
  s.build.checkpointing = s.question.checkpointing.kind != CheckpointingKind::none;
  s.build.attention = attention_of(s.question.attention);
  s.train.environment.attention = named_kernel(s.question.attention);
  s.build.vocabulary = s.question.vocab;
  s.build.expert_ranks = s.question.expert_ranks;
  s.build.expert_share = s.question.expert_ranks > 1 ? s.question.expert_imbalance.expected : 1;
  s.build.compiled = s.question.compile.model;
  // A checkpointed model makes none (transformers switches it off, and says so).
  s.build.use_cache = s.question.use_cache && !s.build.checkpointing;
}

void set_train(Scenario& s) {
  const FitQuestion& q = s.question;
  step::TrainOptions& train = s.train;
  train.weights = dtype_of(q.dtype);
  train.keep_outputs = q.keep_outputs;
  train.compiled = q.compile;
  train.accumulation = std::min(q.grad_accum, kSimulatedMicroBatches);
  train.clip_gradients = q.clip.has_value();
  train.optimizer_in_backward = q.optimizer_in_backward;
  set_checkpointing(s);
  set_optimizer(s);
  set_division(s);
  if (q.stages > 1) set_pipeline(s);
}

// A class for each sequence in place of the family's own task, where that is asked for, or where
// the config is of such a model and nobody says anything.
Result<void> classify_sequences(Scenario& s, const model::Family& family) {
  if (!s.question.given.contains("task")) {
    HEADROOM_ASSIGN(const bool is_named, names_a_classifier(s));
    if (!is_named || !model::classifies_sequences(family)) return {};
    s.question.classifies = true;
    s.derived.push_back({"task", "sequence-classification", SettingOrigin::config});
  }
  if (!s.question.classifies) return {};
  if (!model::classifies_sequences(family)) {
    return Error{ErrorCode::unavailable,
                 "'" + std::string(family.model_type) +
                     "' has no head in transformers that classifies sequences, or none that is "
                     "modelled",
                 "--task", "leave it out, or trace a function of your own (file.py:function)"};
  }
  HEADROOM_ASSIGN(const int64_t labels, model::label_count(s.model->view()));
  s.task = model::Task::sequence_classification;
  s.build.classes = s.question.labels.value_or(labels);
  if (!s.question.labels) {
    s.derived.push_back({"labels", std::to_string(labels), SettingOrigin::config});
  }
  return {};
}

// What a step of this family is; --decoder-seq is for those that have a decoder of their own.
Result<void> set_task(Scenario& s) {
  if (!s.traced) {
    HEADROOM_ASSIGN(const model::Family* family,
                    model::find_family(s.model->view(), {s.question.assume}));
    s.task = family->task;
    s.assumes = family->assumes;
    s.leaves_parameters_idle = family->leaves_parameters_idle;
    HEADROOM_TRY(classify_sequences(s, *family));
  } else if (s.question.classifies) {
    return Error{ErrorCode::usage, "a function of your own says itself what is trained", "--task",
                 "leave it out"};
  }
  if (s.question.decoder_seq && s.task != model::Task::seq2seq_lm) {
    return Error{ErrorCode::usage, "this model has no decoder beside an encoder", "--decoder-seq",
                 "leave it out"};
  }
  if (s.task != model::Task::causal_lm && !s.question.classifies) {
    s.derived.push_back({"task", std::string(task_name(s.task)), SettingOrigin::derived});
  }
  return {};
}

// A length that nobody asked for stays within the model's positions.
Result<void> shorten_default_sequence(Scenario& s) {
  if (s.question.given.contains("seq") || s.question.seq != FitQuestion().seq) return {};
  HEADROOM_ASSIGN(const auto positions, positions_of(s));
  if (!positions || *positions >= s.question.seq) return {};
  s.question.seq = *positions;
  s.build.sequence = part_of_sequence(s.question);
  s.derived.push_back({"seq", std::to_string(*positions), SettingOrigin::config});
  return {};
}

// Autocast is over float32 weights unless the question says otherwise; adapters on quantized
// weights and traced modules have types of their own.
void set_autocast_weights(Scenario& s) {
  FitQuestion& q = s.question;
  const bool has_own = s.traced || has_quantized_base(q);
  if (q.mixed_precision == MixedPrecision::none || has_own || q.given.contains("dtype")) return;
  q.dtype = Dtype::fp32;
  s.derived.push_back({"dtype", "fp32", SettingOrigin::derived});
}

Result<Scenario> complete_megatron(Scenario s) {
  HEADROOM_TRY(set_allocator(s));
  HEADROOM_TRY(set_versions(s));
  HEADROOM_TRY(set_megatron(s));
  s.offered =
      s.device->usable_memory.known() ? s.device->usable_memory.value : s.device->memory.value;
  return s;
}

Result<Scenario> complete(Scenario s) {
  if (s.question.megatron) return complete_megatron(std::move(s));
  HEADROOM_TRY(take_config_dtype(s));
  HEADROOM_TRY(take_quantization_config(s));
  HEADROOM_TRY(take_half_of_deepspeed(s));
  set_autocast_weights(s);
  HEADROOM_TRY(set_allocator(s));
  HEADROOM_TRY(set_versions(s));
  set_build(s);
  HEADROOM_TRY(resolve_auto(s));
  if (s.question.stages > 1) fill_stages(s);
  set_train(s);
  HEADROOM_TRY(set_task(s));
  HEADROOM_TRY(set_parts(s));
  HEADROOM_TRY(check_architecture(s));
  HEADROOM_TRY(shorten_default_sequence(s));
  HEADROOM_TRY(set_loss(s));
  if (s.task != model::Task::causal_lm && s.loss != Loss::hf) {
    return Error{ErrorCode::usage, "fused losses are those of causal language models", "--loss",
                 "'" + s.model->name + "' trains with --loss hf"};
  }
  HEADROOM_TRY(check_supported(s));
  warn_of_bf16(s);
  warn_of_fp16_gradients(s);
  warn_of_compiled_masks(s);
  HEADROOM_ASSIGN(s.beyond_positions, beyond_positions(s));
  if (s.traced) HEADROOM_TRY(check_layers(s));
  s.offered =
      s.device->usable_memory.known() ? s.device->usable_memory.value : s.device->memory.value;
  if (auto* zero = std::get_if<step::ZeroOptions>(&s.train.parallel)) {
    zero->device_bytes =
        (s.offered - outside_allocator(*s.device, communicators_of(s.question)).expected).count;
  }
  return s;
}

// Colossal-AI's own groups stand beside torch's default one, in which launch() counts the processes
// of a host and each step looks for overflow: parameters that are not divided have one of all ranks
// again (tensor/process_group.py makes a group of the same ranks once), those that are divided one
// of their holders, and products one of theirs.
Communicators communicators_of_gemini(int64_t replicas, int64_t tensor_ranks) {
  const int64_t all = replicas * tensor_ranks;
  if (replicas == 1 || tensor_ranks == 1) return communicators_among({all, all});
  return communicators_among({all, all, replicas, tensor_ranks});
}

}  // namespace

Communicators communicators_of(const FitQuestion& question) {
  if (question.megatron) return communicators_of(question.ranks, *question.megatron);
  if (question.division == Division::gemini) {
    return communicators_of_gemini(question.ranks, question.tensor_ranks);
  }
  const int64_t same_experts =
      question.expert_ranks > 1 ? question.ranks / question.expert_ranks : 1;
  return communicators_among({question.ranks * question.context_ranks, question.replicas,
                              question.tensor_ranks, question.context_ranks, question.stages,
                              question.expert_ranks, same_experts});
}

// parallel_state.py: groups that a step reduces, gathers or sends in; norms of gradients are of
// tensor and pipeline ranks together.
Communicators communicators_of(int64_t ranks, const MegatronSetting& setting) {
  const model::MegatronRank& rank = setting.stage.rank;
  const bool has_experts = setting.stage.model.experts > 0;
  const bool shares_embedding =
      setting.data.shares_embedding && (rank.is_first() || rank.is_last());
  return communicators_among(
      {ranks, rank.tensor, rank.pipeline, rank.tensor * rank.pipeline, rank.context,
       setting.data.data_ranks, has_experts ? rank.expert * rank.expert_tensor : 1,
       has_experts ? setting.data.expert_ranks : 1, shares_embedding ? 2 : 1});
}

DeviceMemory memory_of_device(const Scenario& s) {
  DeviceMemory memory;
  memory.name = s.device->name;
  memory.count = devices_of(s.question);
  memory.total = s.device->memory.value;
  memory.offered = s.offered;
  memory.provenance = s.device->usable_memory.known() ? s.device->usable_memory.provenance
                                                      : s.device->memory.provenance;
  return memory;
}

Interval room_within(const Scenario& s, const Interval& used) {
  return {s.offered - used.high, s.offered - used.expected, s.offered - used.low};
}

bool reads_seq(const Scenario& s) { return s.task != model::Task::image_classification; }

op::DType dtype_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::bf16:
      return op::DType::bf16;
    case Dtype::fp16:
      return op::DType::f16;
    case Dtype::fp32:
      return op::DType::f32;
  }
  return op::DType::f32;
}

Result<std::string> model_type_of(const Scenario& scenario) {
  if (!scenario.question.assume.empty()) return scenario.question.assume;
  HEADROOM_ASSIGN(const auto model_type, scenario.model->view().optional_string("model_type"));
  return model_type.value_or("");
}

namespace {

// What libraries set aside on a GPU goes by its generation (blas_workspace.h); a file of devices
// need not say it.
Result<void> check_generation(const device::Device& device) {
  if (device.vendor == device::Vendor::cpu || device.compute_capability.known()) return {};
  return Error{ErrorCode::bad_input, "of this device no compute_capability is known", device.name,
               "its file can say it: \"compute_capability\": {\"value\": \"9.0\", ...}"};
}

Result<Scenario> resolved(Scenario scenario) {
  const FitQuestion& question = scenario.question;
  scenario.steps = std::make_shared<SharedSteps>();
  HEADROOM_TRY(load_model_and_device(scenario));
  HEADROOM_TRY(check_generation(*scenario.device));
  if (!question.calibration.empty()) {
    HEADROOM_ASSIGN(Calibration calibration, load_correction(question.calibration));
    scenario.calibration = std::make_shared<Calibration>(std::move(calibration));
  }
  // The name of a run of Megatron-LM's is a name alone, whatever it looks like.
  const bool is_traced = !question.megatron && model::is_python_function(question.model);
  if (is_traced) HEADROOM_TRY(trace_model(scenario));
  if (!question.assume.empty()) {
    scenario.assumptions.push_back("the architecture is taken to be like " + question.assume);
  }
  return complete(std::move(scenario));
}

}  // namespace

Result<device::DeviceCatalogue> catalogue_with(const std::string& calibration) {
  HEADROOM_ASSIGN(auto catalogue, device::DeviceCatalogue::load());
  if (calibration.empty()) return catalogue;
  HEADROOM_ASSIGN(const auto measured, timing::find_calibration(calibration));
  if (measured) HEADROOM_TRY(timing::add_device(*measured, catalogue));
  return catalogue;
}

Result<Scenario> resolve(const FitQuestion& question) {
  Scenario scenario;
  scenario.question = question;
  return resolved(std::move(scenario));
}

Result<Scenario> resolve(const FitQuestion& question, device::Device device) {
  Scenario scenario;
  scenario.question = question;
  scenario.device = std::make_shared<const device::Device>(std::move(device));
  return resolved(std::move(scenario));
}

Result<Scenario> vary(const Scenario& scenario, const FitQuestion& question) {
  Scenario varied;
  varied.question = question;
  varied.model = scenario.model;
  varied.traced = scenario.traced;
  varied.steps = scenario.steps;
  varied.device = scenario.device;
  varied.calibration = scenario.calibration;
  varied.assumptions = scenario.assumptions;
  if (scenario.traced) HEADROOM_TRY(trace_again(scenario, varied));
  return complete(std::move(varied));
}

}  // namespace headroom::fit
