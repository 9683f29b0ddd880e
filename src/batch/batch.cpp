#include "batch/batch.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "batch/replication.h"
#include "engines/vllm.h"
#include "text/number.h"

namespace headroom::batch {
namespace {

// What replication under time-slicing kept of the network's gain, where it was measured (three
// pairs of OPT-1.3B on one H100: 0.74 to 0.85; arXiv 2503.08311, its repository's results).
constexpr Interval kTimeSlicing{0.74, 0.80, 0.85};
// Of the network's gain under MPS, where the caches sufficed (three such pairs: +0.5 to +3.1 %). A
// few pairs on one GPU are no basis for a narrower interval.
constexpr Interval kMps{0.95, 1.0, 1.06};

Error usage(std::string words, std::string hint = {}) {
  return Error{ErrorCode::usage, std::move(words), {}, std::move(hint)};
}

Result<void> check(const BatchQuestion& question, bool has_model) {
  if (question.points.empty() && (!has_model || !question.device)) {
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
  if (question.most_replicas < 1 || question.most_replicas > kMostReplicas) {
    return usage("--most-replicas takes 1 to 16");
  }
  return {};
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

// A predictor where there is a model and a device.
Result<std::unique_ptr<timing::DecodePredictor>> predictor_for(const BatchQuestion& question,
                                                               const Workload& workload,
                                                               const text::JsonView* config,
                                                               const timing::TimingModel& model) {
  if (config == nullptr || !question.device) return std::unique_ptr<timing::DecodePredictor>();
  const timing::DecodeOptions options{.context = mean_context(workload),
                                      .weights = question.weights};
  HEADROOM_ASSIGN(timing::DecodePredictor made,
                  timing::DecodePredictor::make(*config, *question.device, options, model));
  return std::make_unique<timing::DecodePredictor>(std::move(made));
}

double bytes_of_a_token(const timing::DecodePredictor& predictor, const Workload& workload) {
  return static_cast<double>(predictor.kv_of_one().count) /
         static_cast<double>(mean_context(workload));
}

// What is left for the cache beside the weights; 0 where they do not fit.
Bytes cache_of(const timing::DecodePredictor& predictor, const device::Device& device) {
  if (!device.usable_memory.known()) return {};
  const double whole =
      timing::kMemoryShare * static_cast<double>(device.usable_memory.value.count) -
      static_cast<double>(predictor.weights().count);
  return Bytes(static_cast<int64_t>(std::max(0.0, whole)));
}

Result<std::unique_ptr<ServingCurve>> curve_of(const BatchQuestion& question,
                                               const Workload& workload,
                                               const timing::DecodePredictor* predictor,
                                               Bytes cache) {
  if (!question.points.empty()) {
    auto measured = MeasuredCurve::make(question.points);
    if (!measured) {
      Error error = measured.error();
      error.where = question.points_file;
      return error;
    }
    return std::unique_ptr<ServingCurve>(std::make_unique<MeasuredCurve>(*std::move(measured)));
  }
  const double tokens = static_cast<double>(cache.count) / bytes_of_a_token(*predictor, workload);
  HEADROOM_ASSIGN(PredictedCurve predicted, PredictedCurve::make(*predictor, workload, tokens));
  return std::unique_ptr<ServingCurve>(std::make_unique<PredictedCurve>(std::move(predicted)));
}

// The rule takes the largest batch that pays; where throughput falls, a smaller one has more.
void note_falling_throughput(BatchAnswer& answer) {
  if (!answer.chosen) return;
  constexpr double kMore = 1.02;
  const auto rate = [&](size_t i) {
    return answer.curve[i].point.throughput_tokens_per_second.expected;
  };
  size_t best = 0;
  for (size_t i = 0; i < *answer.chosen; ++i) {
    if (rate(i) > rate(best)) best = i;
  }
  if (rate(best) <= kMore * rate(*answer.chosen)) return;
  answer.notes.push_back("throughput falls with the batch: batch " +
                         std::to_string(answer.curve[best].point.batch) +
                         " gives more than B_opt does");
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

Result<void> fill_curve(const ServingCurve& curve, BatchAnswer& answer) {
  HEADROOM_ASSIGN(const BatchPoint one, curve.at(1));
  std::vector<BatchPoint> points;
  for (const int64_t batch : curve.candidates()) {
    HEADROOM_ASSIGN(const BatchPoint point, curve.at(batch));
    points.push_back(point);
    answer.curve.push_back({point, BatchingConfigurationAdvisor::efficiency(point, one)});
  }
  if (points.empty()) return {};
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
  const BatchingConfigurationAdvisor advisor({.itl_target_seconds = answer.itl_target_seconds,
                                              .min_efficiency = answer.question.min_efficiency});
  const bool is_measured = !answer.question.points.empty();
  answer.advice = advisor.advise(points, one, is_measured ? Bound::measured : Bound::memory);
  for (size_t i = 0; i < points.size(); ++i) {
    if (answer.advice.batch == points[i].batch) answer.chosen = i;
  }
  note_falling_throughput(answer);
  note_doubtful_points(answer);
  HEADROOM_ASSIGN(answer.half_point, curve.half_point());
  answer.knee = knee_of(answer.half_point, points.back().batch);
  return {};
}

void fill_cache(const timing::DecodePredictor* predictor, Bytes cache, BatchAnswer& answer) {
  const BatchPoint& chosen = answer.curve[*answer.chosen].point;
  answer.kv.share = chosen.kv_share;
  answer.kv.provenance = chosen.provenance;
  if (predictor == nullptr || cache.count == 0) return;
  answer.kv.whole = cache;
  const double needed = chosen.kv_share ? *chosen.kv_share * static_cast<double>(cache.count)
                                        : kv_tokens_needed(chosen.running, answer.workload) *
                                              bytes_of_a_token(*predictor, answer.workload);
  if (!chosen.kv_share) {
    answer.kv.share = needed / static_cast<double>(cache.count);
    answer.kv.provenance = Provenance::extrapolated;
  }
  answer.kv.needed = Bytes(static_cast<int64_t>(needed));
  answer.kv.freed = Bytes(std::max<int64_t>(0, cache.count - answer.kv.needed->count));
}

// Where requests come by themselves; B_opt and its targets are known.
Result<void> fill_open_load(const ServingCurve& curve, const timing::DecodePredictor* predictor,
                            Bytes cache, BatchAnswer& answer) {
  const BatchQuestion& question = answer.question;
  if (!question.open_load.is_asked()) return {};
  std::optional<double> cache_tokens;
  if (predictor != nullptr && cache.count > 0) {
    cache_tokens = static_cast<double>(cache.count) / bytes_of_a_token(*predictor, answer.workload);
  }
  HEADROOM_ASSIGN(OpenLoadBasis basis,
                  open_load_basis(question, answer.workload, curve, predictor, cache_tokens));
  basis.chosen = answer.curve[answer.chosen.value_or(0)].point.batch;
  HEADROOM_ASSIGN(answer.open_load, answer_open_load(question, basis, answer.itl_target_seconds));
  return {};
}

// The share of a step in which the GPU waits: given, or as predicted for B_opt.
Result<void> fill_host_gap(const timing::DecodePredictor* predictor, BatchAnswer& answer) {
  if (answer.question.host_gap) {
    answer.host_gap = answer.question.host_gap;
    answer.host_gap_source = "given";
    return {};
  }
  if (predictor == nullptr) return {};
  HEADROOM_ASSIGN(const timing::DecodeStep step,
                  predictor->step(answer.curve[*answer.chosen].point.batch));
  answer.host_gap = step.host.seconds / step.parts_seconds();
  answer.host_gap_source = "predicted, of " + predictor->engine().name;
  return {};
}

// What a step's time is made of, up to the largest batch of the curve.
Result<void> fill_steps(const timing::DecodePredictor& predictor, BatchAnswer& answer) {
  answer.weights = predictor.weights();
  const int64_t most = answer.curve[answer.largest].point.batch;
  for (int64_t batch = 1; batch <= std::min(most, timing::kMostBatch); batch *= 2) {
    HEADROOM_ASSIGN(timing::DecodeStep step, predictor.step(batch));
    answer.steps.push_back(std::move(step));
  }
  return {};
}

Interval scaled(const Interval& factors, double gain, double base) {
  // One server's worth is never lost by the model: below 1 only what was measured goes.
  return {factors.low * gain * base, factors.expected * gain * base, factors.high * gain * base};
}

void fill_replicas(const timing::DecodePredictor* predictor, BatchAnswer& answer) {
  if (!answer.host_gap) {
    answer.notes.emplace_back(
        "what replicas would gain depends on how long the GPU waits for the host in each step: "
        "give "
        "--host-gap SHARE (1 - kernel time / wall time of a decode step in a profile), or a MODEL "
        "and "
        "a --device to have it predicted");
    return;
  }
  const double chosen = answer.curve[*answer.chosen].point.throughput_tokens_per_second.expected;
  const double most = answer.curve[answer.largest].point.throughput_tokens_per_second.expected;
  for (int count = 2; count <= answer.question.most_replicas; ++count) {
    const double gain = replication_speedup(count, *answer.host_gap);
    std::optional<bool> fits;
    if (predictor != nullptr && answer.kv.needed && answer.question.device) {
      const device::Device& device = *answer.question.device;
      const int64_t one = predictor->weights().count + answer.kv.needed->count +
                          device.context.value.expected.count;
      fits = static_cast<double>(one) * count <=
             timing::kMemoryShare * static_cast<double>(device.usable_memory.value.count);
    }
    for (const Sharing sharing : {Sharing::mps, Sharing::time_slicing}) {
      const Interval& kept = sharing == Sharing::mps ? kMps : kTimeSlicing;
      answer.replicas.push_back({.count = count,
                                 .sharing = sharing,
                                 .speedup_vs_single = scaled(kept, gain, 1),
                                 .speedup_vs_max = scaled(kept, gain, chosen / most),
                                 .fits = fits});
    }
  }
}

// The most replicas that fit under MPS; 1 where none do or nothing is known.
int best_count(const BatchAnswer& answer) {
  int count = 1;
  double best = 1;
  for (const Replicas& replicas : answer.replicas) {
    if (replicas.sharing != Sharing::mps || !replicas.fits.value_or(false)) continue;
    if (replicas.speedup_vs_max.expected > best * 1.01) {
      best = replicas.speedup_vs_max.expected;
      count = replicas.count;
    }
  }
  return count;
}

void fill_commands(BatchAnswer& answer) {
  engines::VllmServer server;
  server.model = answer.question.model.empty() ? "MODEL" : answer.question.model;
  server.max_num_seqs = *answer.advice.batch;
  server.kv_cache = answer.kv.needed;
  answer.commands.push_back({"one server at B_opt", engines::serve_line(server)});
  const int count = best_count(answer);
  if (count < 2) return;
  int step = 1;
  for (const std::string& line : engines::replica_lines(server, count)) {
    answer.commands.push_back(
        {std::to_string(count) + " replicas under MPS, step " + std::to_string(step++), line});
  }
}

// The server that was simulated.
void add_open_load_command(BatchAnswer& answer) {
  const OpenLoadQuestion& question = answer.question.open_load;
  engines::VllmServer server;
  server.model = answer.question.model.empty() ? "MODEL" : answer.question.model;
  server.max_num_seqs = answer.open_load->limit;
  std::string line = engines::serve_line(server);
  line += " --max-num-batched-tokens " + std::to_string(question.max_num_batched_tokens);
  line +=
      question.has_chunked_prefill ? " --enable-chunked-prefill" : " --no-enable-chunked-prefill";
  answer.commands.insert(answer.commands.begin(),
                         Command{"one server for requests as they come", std::move(line)});
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
  HEADROOM_TRY(check(question, true));
  const Workload workload = workload_for(question);
  HEADROOM_ASSIGN(const auto predictor, predictor_for(question, workload, config, model));
  const double tokens = static_cast<double>(cache_of(*predictor, *question.device).count) /
                        bytes_of_a_token(*predictor, workload);
  HEADROOM_ASSIGN(const PredictedCurve curve, PredictedCurve::make(*predictor, workload, tokens));
  HEADROOM_ASSIGN(StepBase base,
                  base_of_prediction(curve, question.model + " on " + question.device->name));
  return std::optional(std::move(base));
}

Result<BatchAnswer> answer(const BatchQuestion& question, const text::JsonView* config,
                           const timing::TimingModel& model) {
  HEADROOM_TRY(check(question, config != nullptr));
  BatchAnswer answer;
  answer.question = question;
  for (const std::string& left_out : question.points_left_out) {
    answer.notes.push_back("left out: " + left_out);
  }
  answer.workload = workload_for(question);
  HEADROOM_ASSIGN(const auto predictor, predictor_for(question, answer.workload, config, model));
  const Bytes cache = predictor ? cache_of(*predictor, *question.device) : Bytes();
  HEADROOM_ASSIGN(const auto curve, curve_of(question, answer.workload, predictor.get(), cache));
  HEADROOM_TRY(fill_curve(*curve, answer));
  if (answer.curve.empty()) {
    answer.notes.emplace_back("the weights and one sequence do not fit on this device");
    return answer;
  }
  if (predictor) HEADROOM_TRY(fill_steps(*predictor, answer));
  HEADROOM_TRY(fill_open_load(*curve, predictor.get(), cache, answer));
  if (!answer.chosen) {
    if (answer.open_load) add_open_load_command(answer);
    return answer;
  }
  fill_cache(predictor.get(), cache, answer);
  HEADROOM_TRY(fill_host_gap(predictor.get(), answer));
  fill_replicas(predictor.get(), answer);
  fill_commands(answer);
  if (answer.open_load) add_open_load_command(answer);
  return answer;
}

}  // namespace headroom::batch
