#include "report/bench/text.h"

#include <algorithm>

#include "report/bench/decode_intervals.h"
#include "text/number.h"
#include "text/table.h"
#include "text/utf8.h"

namespace headroom::report {
namespace {

using bench::DecodeAnswer;
using bench::DecodeStep;
using text::Align;
using text::formatted;
using text::Style;
using text::Table;
using text::Terminal;

// Below it attention waits for something else: what well-made kernels reach is above.
constexpr double kDramShare = 0.6;

std::string milliseconds(double seconds) {
  const double ms = seconds * 1e3;
  return formatted(ms < 10 ? "%.2f" : ms < 100 ? "%.1f" : "%.0f", ms);
}

std::string percent(double part, double whole) {
  return whole > 0 ? formatted("%.0f %%", 100 * part / whole) : "";
}

std::string model_words(const DecodeAnswer& answer) {
  std::string words = text::printable(answer.model);
  if (!answer.measured || !answer.measured->layers) return words;
  words += " (" + std::to_string(*answer.measured->layers);
  if (answer.measured->layers_of_model) {
    words += " of " + std::to_string(*answer.measured->layers_of_model);
  }
  return words + " layers)";
}

std::string interval_words(const DecodeStep& step) {
  if (step.step.low_seconds == step.step.high_seconds) return "one run";
  return milliseconds(step.step.low_seconds) + "-" + milliseconds(step.step.high_seconds);
}

std::string steps_table(const DecodeAnswer& answer, const Terminal& terminal) {
  Table table({{"batch", Align::right, false},
               {"step ms", Align::right, false},
               {answer.measured ? "95 %" : "90 %", Align::right, false},
               {"tokens/s", Align::right, false},
               {"attention", Align::right, false},
               {"matmul", Align::right, false},
               {"other", Align::right, false},
               {"host", Align::right, false},
               {"FLOP/B", Align::right, false},
               {"GB/s", Align::right, false},
               {"DRAM", Align::right, false},
               {"", Align::left, false}});
  for (const DecodeStep& step : answer.steps) {
    const double whole = step.parts_seconds();
    const bool is_counted = step.attention.bytes > 0;
    table.row({std::to_string(step.batch),
               milliseconds(step.step.seconds),
               interval_words(step),
               formatted("%.0f", static_cast<double>(step.batch) / step.step.seconds),
               percent(step.attention.time.seconds, whole),
               percent(step.matmul.time.seconds, whole),
               percent(step.other.time.seconds, whole),
               percent(step.host.seconds, whole),
               is_counted ? formatted("%.1f", step.attention.arithmetic_intensity()) : "-",
               is_counted ? formatted("%.1f", step.attention.bytes_per_second() * 1e-9) : "-",
               is_counted ? percent(step.attention.bytes_per_second(), answer.peak_bytes_per_second)
                          : "-",
               {step.fits ? "" : "does not fit", Style::bad}});
  }
  return table.render(terminal);
}

// How sure each figure of the table above it is.
std::string intervals_table(const DecodeAnswer& answer, const Terminal& terminal) {
  Table table({{"90 % of", Align::right, false},
               {"tokens/s", Align::right, false},
               {"attention", Align::right, false},
               {"matmul", Align::right, false},
               {"other", Align::right, false},
               {"host", Align::right, false},
               {"GB/s", Align::right, false},
               {"DRAM", Align::right, false}});
  const auto range = [](const Spread& spread, double scale, const char* unit) {
    return formatted("%.0f", scale * spread.low) + "-" + formatted("%.0f", scale * spread.high) +
           unit;
  };
  for (const DecodeStep& step : answer.steps) {
    const auto share = [&](const bench::TimeInterval& part) {
      return range(share_spread(step, part), 100, " %");
    };
    const bool is_counted = step.attention.bytes > 0;
    const Spread bytes = rate_spread(step.attention.bytes, step.attention.time);
    table.row({"batch " + std::to_string(step.batch),
               range(rate_spread(static_cast<double>(step.batch), step.step), 1, ""),
               share(step.attention.time), share(step.matmul.time), share(step.other.time),
               share(step.host), is_counted ? range(bytes, 1e-9, "") : "-",
               is_counted ? range(bytes, 100 / answer.peak_bytes_per_second, " %") : "-"});
  }
  return "\n" + table.render(terminal);
}

// What a calibration said of the same steps.
std::string predicted_table(const DecodeAnswer& answer, const Terminal& terminal) {
  if (answer.predicted.empty()) return {};
  Table table({{"batch", Align::right, false},
               {"measured ms", Align::right, false},
               {"predicted", Align::right, false},
               {"90 %", Align::right, false},
               {"off", Align::right, false},
               {"undisturbed", Align::right, false},
               {"off", Align::right, false},
               {"attention", Align::right, false},
               {"matmul", Align::right, false},
               {"other", Align::right, false},
               {"host", Align::right, false}});
  for (size_t i = 0; i < answer.predicted.size(); ++i) {
    const DecodeStep& predicted = answer.predicted[i];
    const DecodeStep& step = answer.steps[i];
    const auto& alone = answer.measured->runs[i].undisturbed_seconds;
    const auto off = [&](double measured) {
      return formatted("%+.0f %%", 100 * (predicted.step.seconds / measured - 1));
    };
    const auto beside = [](double ours, double theirs) {
      return milliseconds(ours) + " / " + milliseconds(theirs);
    };
    table.row({std::to_string(step.batch), milliseconds(step.step.seconds),
               milliseconds(predicted.step.seconds), interval_words(predicted),
               off(step.step.seconds), alone ? milliseconds(*alone) : "-",
               alone ? off(*alone) : "-",
               beside(predicted.attention.time.seconds, step.attention.time.seconds),
               beside(predicted.matmul.time.seconds, step.matmul.time.seconds),
               beside(predicted.other.time.seconds, step.other.time.seconds),
               beside(predicted.host.seconds, step.host.seconds)});
  }
  return "\nPredicted from " + text::printable(answer.predicted_from) + ", off by " +
         formatted("%.0f %%", answer.median_error_pct) + " in the median" +
         (answer.median_error_undisturbed_pct
              ? ", and by " + formatted("%.0f %%", *answer.median_error_undisturbed_pct) +
                    " of what the steps take less other programs' turns on the cores"
              : std::string()) +
         "; classes in ms, predicted / measured.\n" + table.render(terminal);
}

std::string stall_words(const bench::ClassCounters& counters) {
  constexpr size_t kShown = 2;
  std::string words;
  for (size_t i = 0; i < std::min(kShown, counters.stalls.size()); ++i) {
    words += (i > 0 ? ", " : "") + text::printable(counters.stalls[i].reason) +
             formatted(" %.0f %%", counters.stalls[i].pct);
  }
  return words;
}

std::string or_dash(const std::optional<double>& value, const char* format, double factor = 1) {
  return value ? formatted(format, factor * *value) : "-";
}

// The step model's count of the same class and batch; nothing where that batch is not answered.
std::optional<double> counted_intensity(const DecodeAnswer& answer, int64_t batch,
                                        bench::KernelClass kind) {
  const auto step = std::ranges::find(answer.steps, batch, &DecodeStep::batch);
  if (step == answer.steps.end() || kind == bench::KernelClass::other) return std::nullopt;
  const bench::KernelTime& kernels =
      kind == bench::KernelClass::attention ? step->attention : step->matmul;
  if (!(kernels.bytes > 0)) return std::nullopt;
  return kernels.arithmetic_intensity();
}

std::string counters_table(const DecodeAnswer& answer, const bench::DecodeCounters& counters,
                           const Terminal& terminal) {
  Table table({{"counted by ncu", Align::left, false},
               {"launches", Align::right, false},
               {"kernel ms", Align::right, false},
               {"DRAM GB/s", Align::right, false},
               {"of its peak", Align::right, false},
               {"FLOP/B", Align::right, false},
               {"without tensor cores", Align::right, false},
               {"our count", Align::right, false},
               {"warps wait for", Align::left, true}});
  for (const bench::ClassCounters& one : counters.classes) {
    if (one.launches == 0) continue;
    table.row({std::string(bench::name_of(one.kind)), std::to_string(one.launches),
               or_dash(one.seconds, "%.3g", 1e3), or_dash(one.bytes_per_second(), "%.0f", 1e-9),
               or_dash(one.dram_pct, "%.0f %%"), or_dash(one.flops_per_byte(), "%.2f"),
               or_dash(one.thread_flops_per_byte(), "%.2f"),
               or_dash(counted_intensity(answer, counters.batch, one.kind), "%.2f"),
               stall_words(one)});
  }
  return table.render(terminal);
}

std::string counters_words(const DecodeAnswer& answer, const Terminal& terminal) {
  std::string words;
  for (const bench::DecodeCounters& counters : answer.counters) {
    words += "\nBatch " + std::to_string(counters.batch) + ", counters of " +
             text::printable(counters.file) +
             ": ncu runs each kernel alone, so that ratios are compared, not times.\n" +
             counters_table(answer, counters, terminal);
    if (counters.missing.empty()) continue;
    words += "Not in the file:";
    for (const std::string& metric : counters.missing) words += " " + metric;
    words += ", which `ncu --metrics` takes.\n";
  }
  return words;
}

// "batches 256 to 4096: does not fit: ..."; neighbours that have one reason in all but figures are
// one line.
std::string not_run_words(const bench::DecodeMeasurement& measured) {
  std::string words;
  for (size_t i = 0; i < measured.not_run.size();) {
    const bench::DecodeNotRun& first = measured.not_run[i];
    const std::string kind = first.reason.substr(0, first.reason.find(':'));
    size_t end = i + 1;
    while (end < measured.not_run.size() && measured.not_run[end].is_failure == first.is_failure &&
           measured.not_run[end].reason.starts_with(kind)) {
      ++end;
    }
    words += end == i + 1 ? "Batch " : "Batches ";
    words += std::to_string(first.batch);
    if (end > i + 1) words += " to " + std::to_string(measured.not_run[end - 1].batch);
    words += first.is_failure ? " failed: " : " not measured: ";
    words += text::printable(first.reason) + ".\n";
    i = end;
  }
  return words;
}

// The most that other programs took of the steps of a batch, where it is worth saying.
std::string disturbed_words(const DecodeAnswer& answer) {
  constexpr double kWorthSaying = 0.05;
  double most = 0;
  for (size_t i = 0; i < answer.steps.size(); ++i) {
    const auto& alone = answer.measured->runs[i].undisturbed_seconds;
    if (alone) most = std::max(most, 1 - *alone / answer.steps[i].step.seconds);
  }
  double profiled = 0;
  for (const bench::DecodeRun& run : answer.measured->runs) {
    profiled = std::max(profiled, run.waited_share);
  }
  const std::string rough = profiled > bench::kMostWaitedShare
                                ? "Classes are rough: other programs took up to " +
                                      formatted("%.0f %%", 100 * profiled) +
                                      " of the profiled runs, and nobody knows of which kernels.\n"
                                : std::string();
  if (most < kWorthSaying) return rough;
  return rough + "The machine was busy: other programs took up to " +
         formatted("%.0f %%", 100 * most) +
         " of a batch's steps; --json has what they take without.\n";
}

// What the runner has to say of batches: each sentence once.
std::string notes_words(const bench::DecodeMeasurement& measured) {
  std::vector<std::string> said;
  for (const bench::DecodeRun& run : measured.runs) {
    for (const std::string& note : run.notes) {
      if (std::ranges::find(said, note) == said.end()) said.push_back(note);
    }
  }
  std::string words;
  for (const std::string& note : said) words += "Note: " + text::printable(note) + ".\n";
  return words;
}

// Of the largest batch whose energy could be read.
std::string energy_words(const bench::DecodeMeasurement& measured) {
  const auto found = std::find_if(measured.runs.rbegin(), measured.runs.rend(),
                                  [](const auto& run) { return run.joules.has_value(); });
  const bool is_cpu = measured.machine.kind == "cpu";
  if (found == measured.runs.rend() || !(*found->joules > 0)) {
    return is_cpu ? "energy: not readable here (RAPL, /sys/class/powercap)"
                  : "energy: not readable here (NVML)";
  }
  return std::string("energy: measured, ") +
         (is_cpu ? "processor packages by RAPL: " : "the GPU by NVML: ") +
         formatted("%.3g J", *found->joules) +
         formatted(" a step, %.3g tokens a joule",
                   static_cast<double>(found->batch) / *found->joules) +
         formatted(", at batch %.0f", static_cast<double>(found->batch));
}

std::vector<std::string> measured_sources(const DecodeAnswer& answer) {
  const bench::DecodeMeasurement& measured = *answer.measured;
  std::vector<std::string> lines{
      "step: measured, the median of single runs",
      "classes: measured, the quickest profiled run, by the groups of `headroom ops`, less other "
      "programs' turns",
      "host: what the quickest run takes beyond its kernels",
      measured.not_counted.empty()
          ? "work and traffic: counted by the step model, and a rate is that by the class's time"
          : "work and traffic: not counted: " + text::printable(measured.not_counted),
      "peaks: " + answer.peaks + ", " +
          formatted("%.1f GB/s", answer.peak_bytes_per_second * 1e-9) +
          formatted(", %.0f GFLOP/s", answer.peak_flops_per_second * 1e-9),
      energy_words(measured),
      "machine: " + text::printable(measured.machine.product) + ", " +
          std::to_string(measured.machine.units) +
          (measured.machine.kind == "cpu" ? " threads" : " multiprocessors") + ", PyTorch " +
          text::printable(measured.machine.torch) +
          formatted(", load %.1f", measured.machine.load)};
  return lines;
}

// The bandwidth stops growing with the batch: at the DRAM's, or where something else holds it.
std::string saturation_words(const DecodeAnswer& answer) {
  const double share = bench::plateau_bytes_per_second(answer.steps) / answer.peak_bytes_per_second;
  const std::string batch = std::to_string(*answer.saturation_batch);
  const std::string peak = formatted("%.0f %%", 100 * share) + " of the peak";
  if (share >= kDramShare) {
    return "attention has its DRAM bandwidth (" + peak + ") from batch " + batch + " on";
  }
  return "attention's bandwidth grows no more from batch " + batch + " on, at " + peak +
         ": something other than the DRAM holds it";
}

}  // namespace

double decode_compute_share(const DecodeStep& step, const DecodeAnswer& answer) {
  const double flops = step.attention.flops + step.matmul.flops;
  return flops / step.step.seconds / answer.peak_flops_per_second;
}

const DecodeStep* decode_shown_step(const DecodeAnswer& answer) {
  if (answer.steps.empty()) return nullptr;
  const auto at = std::find_if(answer.steps.rbegin(), answer.steps.rend(),
                               [](const DecodeStep& step) { return step.fits; });
  return at == answer.steps.rend() ? &answer.steps.front() : &*at;
}

std::string decode_sentence(const DecodeAnswer& answer) {
  std::string line = model_words(answer) + " on " + text::printable(answer.device) +
                     (answer.measured ? ", measured: " : ", predicted: ");
  const DecodeStep* last = decode_shown_step(answer);
  if (last == nullptr) return line + "no batch was asked for";
  if (answer.saturation_batch) line += saturation_words(answer) + "; ";
  line += "at batch " + std::to_string(last->batch) + (last->fits ? "" : ", which does not fit,") +
          " a step takes " + milliseconds(last->step.seconds) + " ms (" +
          milliseconds(last->step.low_seconds) + " to " + milliseconds(last->step.high_seconds) +
          ")";
  if (last->attention.bytes > 0) {
    line += ", and " + formatted("%.0f %%", 100 * (1 - decode_compute_share(*last, answer))) +
            " of compute is idle";
  }
  return line;
}

// What the host adds to steps that no server's were as short as, and on machines that are none.
void add_host_doubts(const DecodeAnswer& answer, std::vector<std::string>& lines) {
  const bool is_short = std::ranges::any_of(answer.steps, [&](const DecodeStep& step) {
    return step.provenance != Provenance::calibrated &&
           step.step.seconds < answer.least_judged_seconds;
  });
  if (is_short) {
    lines.push_back("no server's step below " + milliseconds(answer.least_judged_seconds) +
                    " ms was judged: of shorter ones the host's share is not known, and the upper "
                    "end of the interval allows for it");
  }
  if (answer.is_host_of_gpus) {
    lines.push_back(
        "the host was not measured on this machine: its time is that of servers with "
        "GPUs (`headroom bench device --seconds 60` measures it)");
  }
}

std::vector<std::string> decode_sources(const DecodeAnswer& answer) {
  if (answer.measured) return measured_sources(answer);
  std::vector<std::string> lines;
  if (answer.checkpoint_type) {
    lines.push_back("weights in " + *answer.checkpoint_type +
                    ", as config.json says the checkpoint has them");
  }
  if (const DecodeStep* last = decode_shown_step(answer)) {
    lines.push_back("attention: " + std::string(name_of(last->attention.provenance)) + ", " +
                    last->attention.basis);
    lines.push_back("matmul: " + std::string(name_of(last->matmul.provenance)) + ", " +
                    last->matmul.basis);
  }
  lines.push_back("host and sampling: " + answer.engine + ", " + answer.engine_source);
  add_host_doubts(answer, lines);
  return lines;
}

std::string decode_text(const DecodeAnswer& answer, const std::string& folder,
                        const Terminal& terminal) {
  std::string words =
      decode_sentence(answer) + "\n\n" + steps_table(answer, terminal) +
      (answer.measured || answer.steps.empty() ? "" : intervals_table(answer, terminal)) +
      predicted_table(answer, terminal) + counters_words(answer, terminal);
  words +=
      "\nFLOP/B, GB/s and DRAM are of the attention kernels: work a byte, counted traffic by time, "
      "its share of the peak.\n";
  if (answer.points > 0) {
    words += "Steps are corrected by " + std::to_string(answer.points) +
             " measured points; shares and classes stay as predicted.\n";
  }
  words += std::to_string(answer.context) + " tokens a sequence, " + answer.dtype + ", weights " +
           format_bytes(answer.weights);
  if (!answer.measured) {
    words += "; the memory holds " + std::to_string(answer.largest_batch) + " sequences";
  }
  words += ".\n";
  if (answer.measured) {
    words +=
        not_run_words(*answer.measured) + notes_words(*answer.measured) + disturbed_words(answer);
  }
  for (const std::string& line : decode_sources(answer)) words += line + ".\n";
  if (!folder.empty()) {
    words += "Records and traces are kept in " + text::printable(folder) +
             "; what is there is not measured again.\n";
  }
  return words;
}

}  // namespace headroom::report
