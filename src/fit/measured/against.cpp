// fit --against: every row of a file of measurements asked as a question, and the answers held
// against what was measured.
#include <algorithm>
#include <cmath>
#include <map>

#include "base/file.h"
#include "base/version.h"
#include "fit/fit.h"
#include "fit/measured/calibration_file.h"
#include "fit/measured/measured_row.h"
#include "fit/megatron/row.h"
#include "fit/prediction.h"
#include "fit/scenario/scenario.h"
#include "fit/stages.h"
#include "fit/time/step_timer.h"
#include "step/operator_bench.h"
#include "text/gzip.h"

namespace headroom::fit {

namespace {

constexpr Bytes kFileMax{256 * kMiB};

AgainstRow described(const text::CsvTable& table, size_t row) {
  AgainstRow out;
  out.id = table.at(row, "id");
  if (out.id.empty()) out.id = std::to_string(row + 1);
  out.source = table.at(row, "source");
  out.model = table.at(row, "model");
  return out;
}

// A row's setting with what the step model says about it.
struct AskedRow {
  FitQuestion question;  // the device by its own name
  Prediction prediction;
  std::optional<Bytes> before_release;   // where the row read it there
  Bytes uncounted;                       // is allocated, and not in what the row says of that
  bool fused_loss = false;               // over whole logits
  std::optional<Interval> peak;          // where experts' shares make it unsure
  std::optional<Result<StepTime>> time;  // where the row says what a step took
};

Bytes predicted_figure(const AskedRow& asked, Metric metric) {
  const Prediction& p = asked.prediction;
  if (metric == Metric::after_step && asked.before_release) return *asked.before_release;
  switch (metric) {
    case Metric::peak_allocated:
      return p.peak_allocated - asked.uncounted;
    case Metric::after_step:
      return p.steady_allocated - asked.uncounted;
    case Metric::peak_reserved:
      return p.peak_reserved;
    case Metric::device_used:
      return p.device_used.expected;
  }
  return {};
}

// A row about a single operator: Liger-Kernel's benchmark, replayed by step/operator_bench.h.
Result<AskedRow> predict_operator(const text::CsvTable& table, size_t row) {
  const step::OperatorRow words{table.at(row, "model"), table.at(row, "method"),
                                table.at(row, "scope"), table.at(row, "notes"),
                                table.at(row, "framework")};
  HEADROOM_ASSIGN(const step::OperatorBench bench, step::parse_operator_bench(words));
  if (const auto caveat = step::operator_row_caveat(words); !caveat.empty()) {
    return Error{ErrorCode::bad_input, std::string(caveat), "", ""};
  }
  HEADROOM_ASSIGN(const int64_t peak,
                  step::operator_peak(bench, step::operator_bench_environment()));
  AskedRow asked;
  asked.prediction.peak_allocated = Bytes(peak);
  return asked;
}

Bytes ignored_weights(const Scenario& scenario, const Prediction& prediction) {
  const auto* fsdp = std::get_if<step::FsdpOptions>(&scenario.train.parallel);
  if (fsdp == nullptr || fsdp->wrap.adapters != step::WrapAdapters::ignored) return {};
  return Bytes(prediction.trainable_count *
               op::element_size(dtype_of(scenario.question.lora_dtype)));
}

// The prediction, and the step's time where the row has one to hold it against. Of PyTorch's
// pipelines a row is of the fullest stage, as of several GPUs people tell the most; of
// Megatron-LM's it says which.
Result<void> predict_step(const Scenario& scenario, bool wants_time, const StepTimer& timer,
                          AskedRow& asked) {
  if (scenario.question.stages > 1) {
    HEADROOM_ASSIGN(const Varied fullest, vary_fullest(scenario, scenario.question));
    asked.prediction = fullest.prediction;
    if (wants_time) {
      asked.time = Error{ErrorCode::bad_input, "no time is held against a pipeline's", "", ""};
    }
    return {};
  }
  HEADROOM_ASSIGN(const DetailedPrediction detail, predict_in_detail(scenario, 0));
  asked.prediction = detail.prediction;
  if (!wants_time) return {};
  // Its stages wait for each other, and the row holds one stage's layers alone.
  if (scenario.train.pipeline.stages > 1) {
    asked.time = Error{ErrorCode::bad_input, "the row is of one rank of a pipeline", "", ""};
  } else {
    asked.time = timer.time_of(scenario, detail.trace);
  }
  return {};
}

Result<AskedRow> predict_row(const text::CsvTable& table, size_t row,
                             const device::DeviceCatalogue& catalogue, const StepTimer& timer) {
  if (table.at(row, "scope").starts_with("op ")) return predict_operator(table, row);
  AskedRow asked;
  HEADROOM_ASSIGN(asked.question, question_of(table, row));
  HEADROOM_ASSIGN(const device::FoundDevice found,
                  catalogue.find_for_measurement(asked.question.device));
  asked.question.device = found.device.name;
  HEADROOM_ASSIGN(const Scenario scenario, resolve(asked.question, found.device));
  HEADROOM_TRY(predict_step(scenario, step_seconds(table, row).has_value(), timer, asked));
  if (lacks_ignored_weights(table, row)) {
    asked.uncounted = ignored_weights(scenario, asked.prediction);
  }
  const auto stated = trainable_count(table, row);
  if (stated && *stated != asked.prediction.trainable_count) {
    return Error{ErrorCode::bad_input,
                 "trains " + std::to_string(*stated) + " parameters, where the method trains " +
                     std::to_string(asked.prediction.trainable_count),
                 "", ""};
  }
  for (const MeasuredFigure& figure : figures_of(table, row)) {
    if (!figure.before_release) continue;
    FitQuestion mean = asked.question;
    mean.seq = mean_sequence(table, row).value_or(mean.seq);
    HEADROOM_ASSIGN(const Scenario mean_batch, vary(scenario, mean));
    HEADROOM_ASSIGN(asked.before_release, allocated_before_release(mean_batch));
  }
  asked.fused_loss = scenario.loss == Loss::fused;
  HEADROOM_ASSIGN(asked.peak, peak_by_imbalance(scenario, asked.prediction.peak_allocated));
  return asked;
}

void fill_prediction(AgainstRow& row, const AskedRow& asked, Metric metric,
                     const Calibration& calibration) {
  row.supported = true;
  row.predicted = predicted_figure(asked, metric);
  if (metric == Metric::peak_allocated) row.interval = asked.peak;
  if (metric == Metric::device_used) {
    row.interval = asked.prediction.device_used;
    row.peak_reserved = asked.prediction.peak_reserved;
    row.oom_probability = asked.prediction.oom_probability;
    row.fused_loss = asked.fused_loss;
    row.ranks = asked.question.ranks;
    row.provenance = Provenance::extrapolated;
  }
  if (const CalibrationLaw* law = calibration.law_for(metric, asked.question.device)) {
    row.predicted = law->apply(*row.predicted);
    row.provenance = Provenance::calibrated;
    if (row.interval) {
      row.interval = Interval{law->apply(row.interval->low), law->apply(row.interval->expected),
                              law->apply(row.interval->high)};
    }
  }
  const double measured = static_cast<double>(row.measured->count);
  row.error_pct = 100.0 * (static_cast<double>(row.predicted->count) - measured) / measured;
}

// Uncorrected, whatever calibration the row is shown with.
CalibrationPoint point_of(const AgainstRow& row, const AskedRow& asked, Metric metric) {
  CalibrationPoint point;
  point.id = row.id;
  point.source = row.source;
  point.model = row.model;
  point.device = asked.question.device;
  point.torch = asked.question.torch;
  point.transformers = asked.question.transformers;
  point.metric = metric;
  point.predicted = predicted_figure(asked, metric);
  point.measured = *row.measured;
  return point;
}

double percentile(std::vector<double> sorted, double share) {
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::clamp<size_t>(rank, 1, sorted.size()) - 1];
}

AgainstSummary summarize(std::string source, std::string metric,
                         const std::vector<const AgainstRow*>& rows) {
  AgainstSummary summary;
  summary.source = std::move(source);
  summary.metric = std::move(metric);
  std::vector<double> errors;
  int64_t with_interval = 0;
  int64_t covered = 0;
  double worst = -1;
  for (const AgainstRow* row : rows) {
    ++summary.rows;
    if (!row->supported || !row->error_pct) continue;
    ++summary.supported;
    const double error = std::abs(*row->error_pct);
    errors.push_back(error);
    if (error > worst) {
      worst = error;
      summary.worst_id = row->id;
    }
    if (row->predicted_seconds) {
      ++with_interval;
      covered += row->predicted_seconds->low <= *row->measured_seconds &&
                 *row->measured_seconds <= row->predicted_seconds->high;
    }
    if (row->interval) {
      ++with_interval;
      covered += row->interval->low <= *row->measured && *row->measured <= row->interval->high;
    }
  }
  if (errors.empty()) return summary;
  std::ranges::sort(errors);
  summary.median_pct = percentile(errors, 0.5);
  summary.p90_pct = percentile(errors, 0.9);
  summary.worst_pct = worst;
  if (with_interval > 0) {
    summary.covered_pct = 100.0 * static_cast<double>(covered) / static_cast<double>(with_interval);
  }
  return summary;
}

std::vector<AgainstSummary> summaries_of(const std::vector<AgainstRow>& rows) {
  std::map<std::pair<std::string, std::string>, std::vector<const AgainstRow*>> groups;
  for (const AgainstRow& row : rows) {
    groups[{row.source, row.metric}].push_back(&row);
    groups[{"all", row.metric}].push_back(&row);
  }
  std::vector<AgainstSummary> summaries;
  for (const auto& [key, members] : groups) {
    summaries.push_back(summarize(key.first, key.second, members));
  }
  return summaries;
}

// Rows whose own source calls them weak teach nothing; nor do those of another engine, since a
// correction is applied to every run.
bool may_teach(const text::CsvTable& table, size_t row) {
  return table.at(row, "quality") != "C" && !is_megatron_row(table, row);
}

AgainstRow time_row(AgainstRow row, double measured, const Result<AskedRow>& asked) {
  row.metric = "step_seconds";
  row.measured_seconds = measured;
  if (!asked) {
    row.reason = asked.error().to_string();
  } else if (!asked->time) {
    row.reason = "is no step";
  } else if (!*asked->time) {
    row.reason = asked->time->error().to_string();
  } else {
    const StepTime& time = **asked->time;
    row.supported = true;
    row.provenance = time.provenance;
    row.predicted_seconds = time.step_seconds;
    row.error_pct = 100 * (time.step_seconds.expected - measured) / measured;
  }
  return row;
}

// The rows of one line of the file, one a figure; what they teach is added to `points`.
void answer_line(const text::CsvTable& table, size_t line, const Result<AskedRow>& asked,
                 const Calibration& calibration, std::vector<AgainstRow>& rows,
                 std::vector<CalibrationPoint>& points) {
  if (const auto measured = step_seconds(table, line)) {
    rows.push_back(time_row(described(table, line), *measured, asked));
  }
  auto figures = figures_of(table, line);
  if (figures.empty() && step_seconds(table, line)) return;
  if (figures.empty()) figures.push_back({Metric::peak_allocated, Bytes(0)});
  for (const MeasuredFigure& figure : figures) {
    AgainstRow row = described(table, line);
    row.metric = name_of(figure.metric);
    if (figure.value > Bytes(0)) row.measured = figure.value;
    if (!asked) {
      row.reason = asked.error().to_string();
    } else if (!row.measured) {
      row.reason = "the row holds no measured figure";
    } else {
      fill_prediction(row, *asked, figure.metric, calibration);
      if (may_teach(table, line)) points.push_back(point_of(row, *asked, figure.metric));
    }
    rows.push_back(std::move(row));
  }
}

Result<void> save(const AgainstQuestion& question, std::vector<CalibrationPoint> points,
                  AgainstAnswer& answer) {
  if (points.empty()) {
    return Error{ErrorCode::bad_input, "no row of it can be modelled, so there is nothing to learn",
                 question.file, "headroom fit --against names the reason of each row"};
  }
  Calibration learned;
  learned.learned_from = question.file;
  learned.version = version();
  learned.laws = learn(points);
  learned.points = std::move(points);
  for (const CalibrationLaw& law : learned.laws) answer.learned.push_back(law.sentence());
  return write_file_atomic(question.save_calibration, calibration_json(learned).dump(2) + "\n");
}

}  // namespace

Result<AgainstAnswer> answer_against(const AgainstQuestion& question) {
  HEADROOM_ASSIGN(const std::string content, text::read_input(question.file, kFileMax));
  HEADROOM_ASSIGN(const text::CsvTable table, text::read_csv(content, question.file));
  for (const char* column : {"model", "value_bytes"}) {
    if (!table.find_column(column)) {
      return Error{ErrorCode::bad_input, std::string("has no column '") + column + "'",
                   question.file, "the columns are those of docs/formats/measurements.md"};
    }
  }
  Calibration calibration;
  if (!question.calibration.empty()) {
    HEADROOM_ASSIGN(calibration, load_correction(question.calibration));
  }
  HEADROOM_ASSIGN(const auto catalogue, catalogue_with(question.calibration));
  AgainstAnswer answer;
  answer.file = question.file;
  answer.calibration = calibration.name;
  if (!content.empty() && content.back() != '\n') {
    answer.warnings.push_back(
        "the last line has no end: if the file was cut, its row may be wrong (line " +
        std::to_string(table.lines.empty() ? 1 : table.lines.back()) + ")");
  }
  HEADROOM_ASSIGN(const StepTimer timer, StepTimer::make(question.calibration));
  std::vector<CalibrationPoint> points;
  for (size_t i = 0; i < table.rows.size(); ++i) {
    answer_line(table, i, predict_row(table, i, catalogue, timer), calibration, answer.rows,
                points);
  }
  for (const CalibrationLaw& law : calibration.laws) {
    if (law.kind != LawKind::none) answer.warnings.push_back("corrected: " + law.sentence());
  }
  if (!question.save_calibration.empty()) {
    HEADROOM_TRY(save(question, std::move(points), answer));
  }
  answer.summary = summaries_of(answer.rows);
  return answer;
}

}  // namespace headroom::fit
