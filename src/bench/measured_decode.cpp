#include "bench/measured_decode.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/median.h"
#include "model/language_part.h"

namespace headroom::bench {
namespace {

using text::Json;
using text::JsonView;
using timing::CountedCall;

constexpr int64_t kMostUsualBatch = 4096;
constexpr double kMostWaited = 0.95;  // of a profiled run: clocks differ
constexpr std::string_view kGemm = "gemm";
constexpr std::string_view kAttention = "attention";

std::string_view runner_dtype(op::DType type) {
  if (type == op::DType::f32) return "fp32";
  return type == op::DType::f16 ? "fp16" : "bf16";
}

// Seconds of the groups that `is_wanted`.
template <typename Wanted>
double seconds_of(const ProfiledRun& run, const Wanted& is_wanted) {
  double ms = 0;
  for (const auto& [name, group_ms] : run.groups) {
    if (is_wanted(name)) ms += group_ms;
  }
  return ms * 1e-3;
}

KernelTime kernels_of(double seconds, std::string basis) {
  KernelTime kernels;
  kernels.time = {seconds, seconds, seconds};
  kernels.provenance = Provenance::measured;
  kernels.basis = std::move(basis);
  return kernels;
}

void count(const std::vector<CountedCall>& calls, KernelTime& kernels) {
  for (const CountedCall& one : calls) {
    kernels.flops += static_cast<double>(one.times) * one.call.flops;
    kernels.bytes += static_cast<double>(one.times) * one.call.bytes;
  }
}

double waited_share_of(const NongemmRecord& record) {
  return std::min(kMostWaited, record.decode->profiled_waited_seconds / record.profiled_seconds);
}

DecodeStep step_of(const NongemmRecord& record) {
  const DecodeFacts& facts = *record.decode;
  const double half = record.uncertainty.value_or(0) * record.seconds;
  DecodeStep step;
  step.batch = record.setting.batch;
  step.kv_cache = facts.cache;
  step.step = {std::max(0.0, record.seconds - half), record.seconds, record.seconds + half};
  step.provenance = Provenance::measured;
  const auto is = [](std::string_view wanted) {
    return [wanted](const std::string& name) { return name == wanted; };
  };
  // Other programs' turns fall on the kernels as these take time.
  const double share = 1 - waited_share_of(record);
  const auto seconds = [&](const auto& is_wanted) {
    return share * seconds_of(record.profile, is_wanted);
  };
  const auto is_other = [](const std::string& name) { return name != kGemm && name != kAttention; };
  step.attention = kernels_of(seconds(is(kAttention)), "profile");
  step.matmul = kernels_of(seconds(is(kGemm)), "profile");
  step.other = kernels_of(seconds(is_other), "profile");
  const double gap = facts.quickest_seconds - step.parts_seconds();
  const double host = std::max(0.0, gap);
  step.host = {host, host, host};
  return step;
}

DecodeRun run_of(const NongemmRecord& record) {
  return {.batch = record.setting.batch,
          .samples = record.samples,
          .quickest_seconds = record.decode->quickest_seconds,
          .profiled_seconds = record.profiled_seconds,
          .waited_share = waited_share_of(record),
          .trace = record.trace,
          .joules = record.decode->joules,
          .undisturbed_seconds = record.decode->undisturbed_seconds,
          .notes = record.notes};
}

bool is_asked(const NongemmRecord& record, const MeasuredDecodeQuestion& question) {
  const NongemmSetting& setting = record.setting;
  const bool is_batch =
      question.batches.empty() ||
      std::ranges::find(question.batches, setting.batch) != question.batches.end();
  return setting.model == question.model && setting.context == question.context &&
         setting.dtype == runner_dtype(question.weights) && is_batch;
}

// The depth that is told of: what was asked for, or what was measured last.
std::optional<int64_t> depth_of(const std::vector<const NongemmRecord*>& records,
                                const MeasuredDecodeQuestion& question) {
  if (question.layers) return question.layers;
  return records.back()->layers;
}

// Counts each class's work; the reason where it cannot be counted.
std::string count_work(const JsonView& config, const MeasuredDecodeQuestion& question,
                       DecodeAnswer& answer) {
  Json fewer;
  const bool is_whole = !answer.measured->layers;
  if (!is_whole) {
    auto cut = with_layers(config.json(), *answer.measured->layers);
    if (!cut) return "the configuration does not say how many layers it has";
    fewer = std::move(*cut);
  }
  const JsonView counted = is_whole ? config : JsonView(fewer, question.model);
  const timing::DecodeOptions options{.context = question.context, .weights = question.weights};
  for (DecodeStep& step : answer.steps) {
    const auto work = timing::decode_work(counted, options, step.batch);
    if (!work) return work.error().message;
    count(work->attention, step.attention);
    count(work->matmul, step.matmul);
  }
  return {};
}

// Of the counted work, at the answer's peaks: whenever those are known better.
void set_rooflines(DecodeAnswer& answer) {
  for (DecodeStep& step : answer.steps) {
    step.roofline_seconds = 0;
    for (const KernelTime* kernels : {&step.attention, &step.matmul}) {
      step.roofline_seconds += std::max(kernels->flops / answer.peak_flops_per_second,
                                        kernels->bytes / answer.peak_bytes_per_second);
    }
  }
}

// In which order they came: of the latest depth, by batch.
std::vector<const NongemmRecord*> chosen(const NongemmRecords& records,
                                         const MeasuredDecodeQuestion& question) {
  std::vector<const NongemmRecord*> all;
  for (const NongemmRecord& record : records.records) {
    if (is_asked(record, question) && record.decode) all.push_back(&record);
  }
  if (all.empty()) return all;
  const auto depth = depth_of(all, question);
  std::erase_if(all, [&](const NongemmRecord* record) { return record->layers != depth; });
  std::ranges::sort(all, {}, [](const NongemmRecord* record) { return record->setting.batch; });
  return all;
}

std::vector<DecodeNotRun> not_run(const NongemmRecords& records,
                                  const MeasuredDecodeQuestion& question,
                                  const std::vector<DecodeStep>& steps) {
  std::vector<DecodeNotRun> rest;
  for (const NongemmRecord& record : records.records) {
    if (!is_asked(record, question) || record.status == NongemmStatus::measured) continue;
    const auto has_run =
        std::ranges::find(steps, record.setting.batch, &DecodeStep::batch) != steps.end();
    if (has_run) continue;
    rest.push_back({record.setting.batch, record.status == NongemmStatus::failed, record.reason});
  }
  std::ranges::stable_sort(rest, {}, &DecodeNotRun::batch);
  return rest;
}

}  // namespace

namespace {

// What families call their number of layers.
constexpr std::array<std::string_view, 4> kLayerNames{"num_hidden_layers", "n_layer", "num_layers",
                                                      "n_layers"};

// Of a language model's part alone.
std::optional<Json> part_with_layers(const Json& part, int64_t layers) {
  for (const std::string_view name : kLayerNames) {
    if (part.find(name) == nullptr) continue;
    Json fewer = part;
    fewer.set(name, layers);
    const Json* kinds = part.find("layer_types");
    if (kinds != nullptr && kinds->is_array()) {
      Json kept = Json::array();
      const auto count = std::min(kinds->size(), static_cast<size_t>(layers));
      for (size_t i = 0; i < count; ++i) kept.push_back(kinds->items()[i]);
      fewer.set("layer_types", std::move(kept));
    }
    return fewer;
  }
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> layers_of(const Json& config) {
  constexpr int64_t kMost = 1'000'000;
  const auto part = model::language_part(JsonView(config, "a configuration"));
  if (!part) return std::nullopt;
  for (const std::string_view name : kLayerNames) {
    if (!part->has(name)) continue;
    const auto layers = part->get_int(name, 1, kMost);
    return layers ? std::optional(*layers) : std::nullopt;
  }
  return std::nullopt;
}

std::optional<Json> with_layers(const Json& config, int64_t layers) {
  const auto part = model::language_part(JsonView(config, "a configuration"));
  if (!part) return std::nullopt;
  auto fewer = part_with_layers(part->json(), layers);
  const bool is_whole = &part->json() == &config;
  if (!fewer || is_whole) return fewer;
  Json whole = config;
  whole.set(std::string(model::kLanguagePartKey), *std::move(fewer));
  return whole;
}

NongemmModel decode_model(const model::ResolvedModel& model) {
  NongemmModel made;
  made.name = model.name;
  made.title = model.name;
  made.recipe = Json::object()
                    .set("name", model.name)
                    .set("config", model.config)
                    .set("inputs", Json::object().set("tokens", 1));
  return made;
}

std::vector<NongemmSetting> decode_settings(const MeasuredDecodeQuestion& question) {
  std::vector<int64_t> batches = question.batches;
  if (batches.empty()) {
    for (int64_t batch = 1; batch <= kMostUsualBatch; batch *= 2) batches.push_back(batch);
  }
  std::ranges::sort(batches);
  batches.erase(std::unique(batches.begin(), batches.end()), batches.end());
  NongemmSetting setting;
  setting.model = question.model;
  setting.engine = "pytorch";
  setting.phase = "decode";
  setting.dtype = runner_dtype(question.weights);
  setting.quantize = "none";
  setting.fusion = "none";
  setting.context = question.context;
  std::vector<NongemmSetting> settings;
  for (const int64_t batch : batches) {
    setting.batch = batch;
    settings.push_back(setting);
  }
  return settings;
}

Result<void> add_predicted(const JsonView& config, const device::Device& device,
                           const timing::TimingModel& model, const std::string& from,
                           DecodeAnswer& answer) {
  HEADROOM_CHECK(answer.measured.has_value(), "an answer of measured steps");
  Json fewer;
  if (answer.measured->layers) {
    auto cut = with_layers(config.json(), *answer.measured->layers);
    if (!cut) return config.error("does not say how many layers it has");
    fewer = std::move(*cut);
  }
  DecodeQuestion question;
  question.model = answer.model;
  question.device = device;
  question.context = answer.context;
  question.weights = op::parse_dtype(answer.dtype).value_or(op::DType::f32);
  for (const DecodeStep& step : answer.steps) question.batches.push_back(step.batch);
  HEADROOM_ASSIGN(DecodeAnswer predicted,
                  predict_decode(answer.measured->layers ? JsonView(fewer, answer.model) : config,
                                 question, model));
  answer.predicted = std::move(predicted.steps);
  answer.predicted_from = from;
  answer.peak_bytes_per_second =
      std::max(answer.peak_bytes_per_second, predicted.peak_bytes_per_second);
  answer.peak_flops_per_second =
      std::max(answer.peak_flops_per_second, predicted.peak_flops_per_second);
  answer.peaks = "measured, here or in the calibration";
  set_rooflines(answer);
  std::vector<double> errors;
  std::vector<double> undisturbed;
  for (size_t i = 0; i < answer.steps.size(); ++i) {
    const auto off = [&](double measured) {
      return 100 * std::abs(answer.predicted[i].step.seconds / measured - 1);
    };
    errors.push_back(off(answer.steps[i].step.seconds));
    const auto& alone = answer.measured->runs[i].undisturbed_seconds;
    if (alone) undisturbed.push_back(off(*alone));
  }
  if (!undisturbed.empty()) answer.median_error_undisturbed_pct = median(undisturbed);
  answer.median_error_pct = median(errors);
  return {};
}

Result<DecodeAnswer> answer_decode(const JsonView& config, const MeasuredDecodeQuestion& question,
                                   const NongemmRecords& records) {
  HEADROOM_TRY(check_context_and_batches(question.context, question.batches));
  const std::vector<const NongemmRecord*> all = chosen(records, question);
  if (all.empty() || !records.machine) {
    const auto rest = not_run(records, question, {});
    Error error{ErrorCode::unavailable, "no decode step was measured", question.model, {}};
    if (!rest.empty()) error.message += ": " + rest.front().reason;
    return error;
  }
  DecodeAnswer answer;
  answer.model = question.model;
  answer.device = records.machine->product;
  answer.context = question.context;
  answer.dtype = std::string(op::dtype_name(question.weights));
  answer.engine = "PyTorch " + records.machine->torch;
  answer.engine_source = "eager, measured";
  answer.peaks = "measured";
  answer.measured = DecodeMeasurement{
      *records.machine, all.front()->layers, all.front()->layers_of_model, {}, {}, {}};
  answer.weights = Bytes(all.front()->parameters * op::element_size(question.weights));
  for (const NongemmRecord* record : all) {
    answer.steps.push_back(step_of(*record));
    answer.measured->runs.push_back(run_of(*record));
    answer.largest_batch = record->setting.batch;
    answer.peak_bytes_per_second =
        std::max(answer.peak_bytes_per_second, record->decode->peak_bytes_per_second);
    answer.peak_flops_per_second =
        std::max(answer.peak_flops_per_second, record->decode->peak_flops_per_second);
  }
  answer.measured->not_counted = count_work(config, question, answer);
  // A disturbed probe is put right by what the products themselves reached.
  for (const DecodeStep& step : answer.steps) {
    if (!(step.matmul.time.seconds > 0)) continue;
    answer.peak_flops_per_second =
        std::max(answer.peak_flops_per_second, step.matmul.flops / step.matmul.time.seconds);
  }
  set_rooflines(answer);
  answer.measured->not_run = not_run(records, question, answer.steps);
  const bool is_clear = std::ranges::all_of(answer.measured->runs, [](const DecodeRun& run) {
    return run.waited_share <= kMostWaitedShare;
  });
  if (is_clear) answer.saturation_batch = saturation_batch(answer.steps);
  return answer;
}

}  // namespace headroom::bench
