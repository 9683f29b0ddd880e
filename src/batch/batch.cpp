#include "batch/batch.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "batch/checkpoint.h"
#include "batch/deploy.h"
#include "batch/predicted.h"
#include "batch/replicas.h"
#include "model/positions.h"
#include "text/number.h"

namespace headroom::batch {
namespace {

Error usage(std::string words, std::string hint = {}) {
  return Error{ErrorCode::usage, std::move(words), {}, std::move(hint)};
}

// `is_measured`: points are there, or will be.
Result<void> check(const BatchQuestion& question, bool has_model, bool is_measured) {
  if (!is_measured && (!has_model || !question.device)) {
    return usage(
        "of which model on which device?",
        "headroom batch MODEL --device NAME, --points FILE.csv, or --url http://HOST:PORT");
  }
  if (!(question.min_efficiency >= 0) || !(question.min_efficiency < 1)) {
    return usage("--min-efficiency takes a share from 0 to 1", "0.1 is the paper's");
  }
  HEADROOM_TRY(check_workload(question));
  HEADROOM_TRY(check_open_load(question.open_load));
  if (question.host_gap && (!(*question.host_gap >= 0) || !(*question.host_gap < 1))) {
    return usage("--host-gap takes a share from 0 to 1");
  }
  for (const int64_t devices :
       {question.variant.tensor_parallel, question.variant.pipeline_parallel}) {
    if (devices < 1 || devices > timing::kMostParallel) {
      return usage("--tp and --pp take 1 to 64");
    }
  }
  if (question.most_replicas < 1 || question.most_replicas > kMostReplicas) {
    return usage("--most-replicas takes 1 to 16");
  }
  return check_engine(question);
}

// Where (batch, throughput) is farthest above the line between its ends, on the affine law:
// B = sqrt(h^2 + h Bmax) - h with the half point h (Kneedle; Satopaa et al., 2011).
std::optional<double> knee_of(double half_point, int64_t largest) {
  if (!(half_point > 0)) return std::nullopt;
  const double knee =
      std::sqrt(half_point * half_point + half_point * static_cast<double>(largest)) - half_point;
  return knee >= 1 ? std::optional<double>(knee) : std::nullopt;
}

Workload workload_for(const BatchQuestion& question) {
  if (!question.requests.empty()) return workload_of(question.requests);
  return workload_of(question.input_tokens, question.output_tokens, question.length_variation);
}

// The mean request has to have its place.
Result<void> check_positions(const Workload& workload, const text::JsonView& config) {
  HEADROOM_ASSIGN(const auto positions, model::served_positions_of(config));
  const double tokens = std::max(workload.input_mean + workload.output_mean, workload.context_mean);
  if (!positions || tokens <= static_cast<double>(*positions)) return {};
  const std::string most = std::to_string(*positions);
  return usage(text::formatted("requests of %.0f tokens", workload.input_mean) +
                   text::formatted(" in and %.0f out on average: ", workload.output_mean) +
                   text::formatted("a sequence of %.0f, and the model has ", tokens) + most +
                   " positions",
               "take requests whose tokens come to " + most + " or less");
}

// Where there is a model and a device.
Result<std::optional<Predicted>> predicted_of(const BatchQuestion& question,
                                              const Workload& workload,
                                              const text::JsonView* config,
                                              const timing::TimingModel& model) {
  if (config == nullptr || !question.device) return std::optional<Predicted>();
  HEADROOM_TRY(check_positions(workload, *config));
  const timing::DecodeOptions options{
      .context = mean_context(workload), .weights = question.weights, .variant = question.variant};
  HEADROOM_ASSIGN(Predicted made,
                  Predicted::make(*config, *question.device, options, workload, model));
  const int64_t tensor = question.variant.tensor_parallel;
  if (made.predictor().heads() % tensor != 0) {
    const auto heads = static_cast<double>(made.predictor().heads());
    return usage(text::formatted("its %.0f heads of attention cannot be shared by ", heads) +
                     text::formatted("%.0f GPUs", static_cast<double>(tensor)),
                 "--tp: a number that divides them");
  }
  if (question.variant.pipeline_parallel > made.predictor().layers()) {
    const std::string layers = std::to_string(made.predictor().layers());
    return usage("a pipeline of " + std::to_string(question.variant.pipeline_parallel) +
                     " stages, and the model has " + layers + " layers",
                 "--pp: " + layers + " or less");
  }
  return std::optional(std::move(made));
}

// The fewest GPUs that share each layer on which it fits, as a hint; "" where none do.
std::string parallel_that_fits(BatchQuestion question, const Workload& workload,
                               const text::JsonView& config, const timing::TimingModel& model) {
  for (int64_t devices = 2 * question.variant.tensor_parallel; devices <= 16; devices *= 2) {
    question.variant.tensor_parallel = devices;
    const auto tried = predicted_of(question, workload, &config, model);
    if (!tried) break;  // nothing joins such GPUs, say
    const auto& made = *tried;
    if (made->curve().candidates().empty()) continue;
    return "; --tp " + std::to_string(devices) + " does: so many that share each layer";
  }
  return {};
}

// Whether it fits with weights of half the bytes, as a hint; "" where it does not.
std::string quantized_that_fits(BatchQuestion question, const Workload& workload,
                                const text::JsonView& config, const timing::TimingModel& model) {
  timing::DecodeVariant& variant = question.variant;
  if (variant.weight_element_bytes || !question.device->rate(device::Rate::fp8).known()) return {};
  variant.weight_element_bytes = 1;
  variant.product_rate = device::Rate::fp8;
  const auto tried = predicted_of(question, workload, &config, model);
  if (!tried || (*tried)->curve().candidates().empty()) return {};
  return "; --quantize fp8 does";
}

// What is missing beside the weights for one sequence alone, and what would have it.
void note_no_room(const BatchQuestion& question, const Predicted& predicted,
                  const text::JsonView& config, const timing::TimingModel& model,
                  BatchAnswer& answer) {
  const double tokens = kv_tokens_needed(1, answer.workload);
  const double sequence = tokens * predicted.bytes_of_token();
  const auto weights = static_cast<double>(predicted.predictor().weights().count);
  const double room =
      timing::kMemoryShare * static_cast<double>(question.device->usable_memory.value.count);
  const auto gib = [](double bytes) { return format_bytes(Bytes(std::llround(bytes))); };
  answer.weights = predicted.predictor().weights();
  answer.notes.push_back("the weights (" + gib(weights) + ") and one sequence of" +
                         text::formatted(" %.0f tokens (", tokens) + gib(sequence) +
                         ") do not fit on this device, of which engines take " + gib(room) + ": " +
                         gib(weights + sequence - room) + " are missing" +
                         quantized_that_fits(question, answer.workload, config, model) +
                         parallel_that_fits(question, answer.workload, config, model));
}

Result<MeasuredCurve> measured_curve(const BatchQuestion& question, const Predicted* predicted) {
  StepForm form;
  if (predicted) {
    HEADROOM_ASSIGN(form, StepForm::of(predicted->curve(), question.points));
  }
  auto measured = MeasuredCurve::make(question.points, form);
  if (measured) return measured;
  Error error = measured.error();
  error.where = question.points_file;
  return error;
}

// By Little's law throughput times the time between tokens is what decodes at once, a little less
// than what is in flight.
void note_doubtful_points(BatchAnswer& answer) {
  constexpr double kLeast = 1.0 / 20;
  constexpr double kMost = 3;
  double most_running = 0;
  std::vector<formats::ServingPoint> points = answer.question.points;
  std::ranges::stable_sort(points, {}, &formats::ServingPoint::batch);
  for (const formats::ServingPoint& point : points) {
    const double running = point.running_mean.value_or(static_cast<double>(point.batch));
    const double decoding = point.throughput_tokens_per_second * point.itl_seconds;
    if (decoding < kLeast * running || decoding > kMost * running) {
      answer.notes.push_back(
          "batch " + std::to_string(point.batch) +
          text::formatted(": tokens per second times the time between them say %.3g", decoding) +
          text::formatted(" in flight, not %.3g: is the time in milliseconds?", running));
      return;
    }
    if (running < 0.9 * most_running) {
      answer.notes.push_back("batch " + std::to_string(point.batch) +
                             " had less in flight than a smaller one: something else than the "
                             "limit held it back, and the law does not hold there");
      return;
    }
    most_running = std::max(most_running, running);
  }
}

// Between B_opt and the next point nothing is a candidate where they are near (candidates() in
// curve.h); what the law says of the limit between them that would do is worth a measurement.
Result<void> note_untried(const ServingCurve& curve, const BatchingConfigurationAdvisor& advisor,
                          BatchAnswer& answer) {
  if (answer.question.points.empty() || !answer.chosen || *answer.chosen == answer.largest) {
    return {};
  }
  const BatchPoint& chosen = answer.curve[*answer.chosen].point;
  const int64_t next = answer.curve[*answer.chosen + 1].point.batch;
  std::vector<BatchPoint> points{chosen};
  for (const int64_t limit : usual_limits(chosen.batch + 1, next - 1)) {
    HEADROOM_ASSIGN(const BatchPoint point, curve.at(limit));
    points.push_back(point);
  }
  HEADROOM_ASSIGN(const BatchPoint one, curve.at(1));
  const Advice untried = advisor.advise(points, one, Bound::measured);
  const auto best = std::ranges::find(points, untried.batch.value_or(0), &BatchPoint::batch);
  if (best == points.end() || best == points.begin()) return {};
  const Interval& rate = best->throughput_tokens_per_second;
  const Interval& itl = best->itl_seconds;
  answer.notes.push_back(
      "between " + std::to_string(chosen.batch) + " and " + std::to_string(next) +
      " nothing was measured: by the law " + std::to_string(best->batch) +
      text::formatted(" would give %.0f tokens/s", rate.expected) +
      text::formatted(" at %.3g ms", itl.expected * 1e3) +
      text::formatted(" (%.3g to ", itl.low * 1e3) + text::formatted("%.3g)", itl.high * 1e3) +
      " between tokens, and is worth measuring");
  return {};
}

AdvisorOptions advisor_options(const BatchAnswer& answer) {
  return {.itl_target_seconds = answer.itl_target_seconds,
          .min_efficiency = answer.question.min_efficiency,
          .most_batch = names_of(answer.question.engine).most_sequences};
}

Result<void> fill_curve(const ServingCurve& curve, BatchAnswer& answer) {
  HEADROOM_ASSIGN(const BatchPoint one, curve.at(1));
  std::vector<BatchPoint> points;
  for (const int64_t batch : curve.candidates()) {
    HEADROOM_ASSIGN(const BatchPoint point, curve.at(batch));
    points.push_back(point);
    answer.curve.push_back({point, BatchingConfigurationAdvisor::efficiency(point, one)});
  }
  if (points.empty()) {
    answer.advice.bound = Bound::memory;
    return {};
  }
  answer.largest = points.size() - 1;
  if (const auto& slo = answer.question.slo) {
    answer.itl_target_seconds = slo->seconds;
    if (!slo->seconds) {
      HEADROOM_ASSIGN(const BatchPoint reference, curve.at(slo->at_batch));
      answer.itl_target_seconds = slo->multiple * reference.itl_seconds.expected;
      if (reference.provenance != Provenance::measured && !answer.question.points.empty()) {
        answer.notes.push_back("batch " + std::to_string(slo->at_batch) +
                               ", which the target is a multiple of, was not measured: its time "
                               "between tokens is the law's");
      }
    }
  }
  const BatchingConfigurationAdvisor advisor(advisor_options(answer));
  const bool is_measured = !answer.question.points.empty();
  answer.advice = advisor.advise(points, one, is_measured ? Bound::measured : Bound::memory);
  for (size_t i = 0; i < points.size(); ++i) {
    if (answer.advice.batch == points[i].batch) answer.chosen = i;
  }
  note_doubtful_points(answer);
  HEADROOM_TRY(note_untried(curve, advisor, answer));
  HEADROOM_ASSIGN(answer.half_point, curve.half_point());
  answer.knee = knee_of(answer.half_point, points.back().batch);
  return {};
}

void fill_cache(const Predicted* predicted, BatchAnswer& answer) {
  const BatchPoint& chosen = answer.curve[*answer.chosen].point;
  answer.kv.share = chosen.kv_share;
  answer.kv.provenance = chosen.provenance;
  if (predicted == nullptr || predicted->cache().count == 0) return;
  const Bytes cache = predicted->cache();
  answer.kv.whole = cache;
  const double needed = chosen.kv_share ? *chosen.kv_share * static_cast<double>(cache.count)
                                        : kv_tokens_needed(chosen.running, answer.workload) *
                                              predicted->bytes_of_token();
  if (!chosen.kv_share) {
    answer.kv.share = needed / static_cast<double>(cache.count);
    answer.kv.provenance = Provenance::extrapolated;
  }
  if (needed > static_cast<double>(cache.count)) {
    answer.notes.emplace_back(
        "B_opt, which was measured, would need more than the whole cache that is predicted beside "
        "the weights: its server has other requests, or lets some wait; the whole is asked for");
    answer.kv.share = 1;
  }
  answer.kv.needed = Bytes(std::min(cache.count, static_cast<int64_t>(needed)));
  answer.kv.freed = Bytes(std::max<int64_t>(0, cache.count - answer.kv.needed->count));
}

// The mean time between tokens is a share of whole requests: of short answers mostly the prompts'.
void note_short_answers(BatchAnswer& answer) {
  if (answer.workload.output_mean >= 2) return;
  answer.notes.push_back(text::formatted("answers of %.3g", answer.workload.output_mean) +
                         (answer.workload.output_mean > 1 ? " tokens" : " token") +
                         " on average: next to nothing is decoded, and what stands for the time "
                         "between tokens is the time of a whole request over its tokens");
}

// Whether all targets are of requests as they come, of which B_opt, of a closed loop, knows
// nothing.
bool aims_at_percentiles(const BatchAnswer& answer) {
  return !answer.question.open_load.targets.empty() && !answer.question.slo;
}

// What stands in no figure of an engine that speculates.
void note_speculation(BatchAnswer& answer) {
  std::string note =
      "speculation is in the figures of requests as they come alone, not in those of a closed "
      "loop; "
      "the command does not turn it on";
  if (!answer.question.points.empty()) {
    note +=
        "; measured steps do not tell attention apart, so that a verified token costs as much as "
        "a sequence more, at most";
  }
  answer.notes.push_back(std::move(note));
}

// Where requests come by themselves; B_opt and its targets are known.
Result<void> fill_open_load(const ServingCurve& curve, const Predicted* predicted,
                            BatchAnswer& answer) {
  const BatchQuestion& question = answer.question;
  if (!question.open_load.is_asked()) return {};
  if (question.open_load.speculation.is_used()) note_speculation(answer);
  HEADROOM_ASSIGN(OpenLoadBasis basis,
                  open_load_basis(question, answer.workload, curve, predicted));
  if (predicted != nullptr && question.points.empty() && question.variant.pipeline_parallel > 1) {
    answer.notes.emplace_back(
        "requests as they come are simulated as if a prompt held up all stages of the pipeline "
        "while it is read: the server could do more");
  }
  basis.chosen = answer.curve[answer.chosen.value_or(0)].point.batch;
  HEADROOM_ASSIGN(answer.open_load, answer_open_load(question, basis, answer.itl_target_seconds));
  return {};
}

// The host's time as it is predicted; where a law has none of it, as much may be the host's as the
// step may be longer than its kernels.
Interval host_gap_of(const timing::DecodeStep& step) {
  const double kernels = step.parts_seconds() - step.host.seconds;
  const auto share = [&](double host) { return host / (kernels + host); };
  const double hidden = step.host.seconds > 0 ? 0 : std::max(step.step.high_seconds - kernels, 0.0);
  return {share(step.host.low_seconds), share(step.host.seconds),
          share(std::max(step.host.high_seconds, hidden))};
}

// The share of a step in which the GPU waits: given, or as predicted for B_opt.
Result<void> fill_host_gap(const Predicted* predicted, BatchAnswer& answer) {
  if (answer.question.host_gap) {
    const double gap = *answer.question.host_gap;
    answer.host_gap = Interval{gap, gap, gap};
    answer.host_gap_source = "given";
    return {};
  }
  if (predicted == nullptr) return {};
  HEADROOM_ASSIGN(const timing::DecodeStep step,
                  predicted->curve().step(answer.curve[*answer.chosen].point.batch));
  answer.host_gap = host_gap_of(step);
  answer.host_gap_source = "predicted, of " + predicted->predictor().engine().name;
  if (answer.host_gap->expected > 0) return {};
  answer.notes.emplace_back(
      "of today's engines no host time was seen beside the kernels, so that replicas are expected "
      "to gain nothing here; what steps were off by may hide some: where a profile shows it, "
      "--host-gap takes its share");
  return {};
}

// What a step's time is made of, up to the largest batch of the curve.
Result<void> fill_steps(const Predicted& predicted, BatchAnswer& answer) {
  answer.weights = predicted.predictor().weights();
  answer.engine_law = predicted.predictor().engine().name;
  answer.engine_law_source = predicted.predictor().engine().source;
  const int64_t most = answer.curve[answer.largest].point.batch;
  for (int64_t batch = 1; batch <= std::min(most, timing::kMostBatch); batch *= 2) {
    HEADROOM_ASSIGN(timing::DecodeStep step, predicted.curve().step(batch));
    answer.steps.push_back(std::move(step));
  }
  return {};
}

// Beside points what is predicted is held against them at B_opt, and scaled by what it misses
// there.
Result<void> fill_correction(const Predicted& predicted, BatchAnswer& answer) {
  if (answer.question.points.empty()) return {};
  const BatchPoint& measured = answer.curve[*answer.chosen].point;
  HEADROOM_ASSIGN(const BatchPoint expected, predicted.curve().at(measured.batch));
  const auto ratio = [](const Interval& a, const Interval& b) { return a.expected / b.expected; };
  Correction& correction = answer.correction.emplace();
  correction.throughput =
      ratio(measured.throughput_tokens_per_second, expected.throughput_tokens_per_second);
  correction.itl = ratio(measured.itl_seconds, expected.itl_seconds);
  const auto off = [](double factor) {
    return text::formatted("%+.0f %%", 100 * (1 / factor - 1));
  };
  answer.notes.push_back(
      "at B_opt the prediction is " + off(correction.throughput) + " off in throughput and " +
      off(correction.itl) +
      " in the time between tokens; what is predicted beside the points is scaled by that");
  return {};
}

// What else the memory could be, and what would be with other settings or models.
Result<void> fill_alternatives(const Predicted& predicted, const text::JsonView& config,
                               const timing::TimingModel& model, const Companion* companion,
                               BatchAnswer& answer) {
  Baseline base{.question = &answer.question,
                .config = &config,
                .workload = answer.workload,
                .advisor = advisor_options(answer),
                .correction = answer.correction.value_or(Correction{})};
  if (answer.open_load && !answer.question.open_load.targets.empty()) {
    const serving::OpenLoadGoal goal{answer.open_load->targets, answer.question.open_load.attain};
    LoadBaseline& load = base.load.emplace(LoadBaseline{goal, {.limit = answer.open_load->limit}});
    HEADROOM_ASSIGN(load.best,
                    load_of(answer.question, answer.workload, predicted, base.correction, load));
    answer.load_baseline = load.best;
  }
  HEADROOM_ASSIGN(answer.what_ifs, what_ifs(base, predicted, model));
  if (!answer.kv.needed) return {};
  const FreedQuestion freed{.base = base,
                            .chosen = answer.curve[*answer.chosen].point,
                            .host_gap = answer.host_gap ? answer.host_gap->expected : 0,
                            .needed = *answer.kv.needed};
  HEADROOM_ASSIGN(answer.freed, uses_of_freed(freed, predicted, companion, model));
  return {};
}

}  // namespace

std::string_view name_of(Sharing sharing) {
  return sharing == Sharing::mps ? "mps" : "time-slicing";
}

Result<void> check_workload(const BatchQuestion& question) {
  for (const double tokens : {question.input_tokens, question.output_tokens}) {
    if (!(tokens >= 1) || !(tokens <= kMostTokens)) {
      return usage("a length goes from 1 to 10000000 tokens");
    }
  }
  if (!(question.length_variation >= 0) || !(question.length_variation <= kMostVariation)) {
    return usage("--length-variation takes 0 (all alike) to 10", "1 is exponential lengths");
  }
  return {};
}

Result<std::optional<StepBase>> base_of(const BatchQuestion& question, const text::JsonView* config,
                                        const timing::TimingModel& model) {
  if (!question.points.empty()) {
    HEADROOM_ASSIGN(StepBase base, base_of_points(question.points, question.points_file));
    return std::optional(std::move(base));
  }
  if (config == nullptr || !question.device) return std::optional<StepBase>();
  HEADROOM_TRY(check(question, true, false));
  const Workload workload = workload_for(question);
  HEADROOM_ASSIGN(const auto predicted, predicted_of(question, workload, config, model));
  HEADROOM_ASSIGN(StepBase base, base_of_prediction(predicted->curve(), question.model + " on " +
                                                                            question.device->name));
  return std::optional(std::move(base));
}

Result<void> check_before_measuring(const BatchQuestion& question, const text::JsonView* config,
                                    const timing::TimingModel& model, const Companion* companion) {
  HEADROOM_TRY(check(question, config != nullptr, true));
  const Workload workload = workload_for(question);
  HEADROOM_TRY(predicted_of(question, workload, config, model));
  if (companion == nullptr) return {};
  HEADROOM_TRY(check_colocation(question));
  HEADROOM_ASSIGN(const BatchQuestion own, question_of_second(companion->config, question));
  HEADROOM_TRY(predicted_of(own, workload, &companion->config, model));
  return {};
}

Result<BatchAnswer> answer(const BatchQuestion& question, const text::JsonView* config,
                           const timing::TimingModel& model, const Companion* companion) {
  HEADROOM_TRY(check(question, config != nullptr, !question.points.empty()));
  if (companion != nullptr) HEADROOM_TRY(check_colocation(question));
  BatchAnswer answer;
  answer.question = question;
  for (const std::string& left_out : question.points_left_out) {
    answer.notes.push_back("left out: " + left_out);
  }
  answer.workload = workload_for(question);
  HEADROOM_ASSIGN(const std::string weights_note, checkpoint_note(question, config));
  if (!weights_note.empty()) answer.notes.push_back(weights_note);
  // One server: what is simulated reads prompts as that of the curve does.
  bool& is_chunked = answer.question.open_load.has_chunked_prefill;
  answer.question.variant.has_chunked_prefill = is_chunked;
  HEADROOM_ASSIGN(const auto made, predicted_of(answer.question, answer.workload, config, model));
  const Predicted* predicted = made ? &*made : nullptr;
  if (predicted != nullptr) is_chunked = predicted->curve().has_chunked_prefill();
  std::optional<MeasuredCurve> measured;
  if (!question.points.empty()) {
    HEADROOM_ASSIGN(measured, measured_curve(question, predicted));
  }
  const ServingCurve& curve =
      measured ? static_cast<const ServingCurve&>(*measured) : predicted->curve();
  HEADROOM_TRY(fill_curve(curve, answer));
  if (answer.curve.empty()) {
    note_no_room(question, *predicted, *config, model, answer);
    return answer;
  }
  if (predicted != nullptr) {
    HEADROOM_TRY(fill_steps(*predicted, answer));
    if (question.points.empty()) note_engine_law(*predicted, answer);
  }
  note_short_answers(answer);
  HEADROOM_TRY(fill_open_load(curve, predicted, answer));
  if (answer.chosen) {
    fill_cache(predicted, answer);
    HEADROOM_TRY(fill_host_gap(predicted, answer));
    HEADROOM_TRY(fill_replicas(predicted, answer));
    if (predicted != nullptr) {
      HEADROOM_TRY(fill_correction(*predicted, answer));
      HEADROOM_TRY(fill_alternatives(*predicted, *config, model, companion, answer));
    }
    if (!aims_at_percentiles(answer)) {
      HEADROOM_TRY(fill_commands(predicted, config, companion, answer));
    }
    fill_prices(answer);
  }
  if (answer.open_load) HEADROOM_TRY(add_open_load_command(predicted, config, answer));
  return answer;
}

}  // namespace headroom::batch
