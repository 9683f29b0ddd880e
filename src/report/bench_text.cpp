#include "report/bench_text.h"

#include <algorithm>

#include "text/number.h"
#include "text/table.h"
#include "text/utf8.h"

namespace headroom::report {
namespace {

using text::Align;
using text::formatted;
using text::Style;
using text::Table;
using text::Terminal;

std::string milliseconds(double seconds) {
  const double ms = seconds * 1e3;
  return formatted(ms < 10 ? "%.2f" : ms < 100 ? "%.1f" : "%.0f", ms);
}

std::string percent(double part, double whole) {
  return whole > 0 ? formatted("%.0f %%", 100 * part / whole) : "";
}

double compute_share(const bench::DecodeStep& step, const bench::DecodeAnswer& answer) {
  const double flops = step.attention.flops + step.matmul.flops;
  return flops / step.step.seconds / answer.peak_flops_per_second;
}

// The largest batch that fits; the smallest where none does. REQUIRES: there are steps.
const bench::DecodeStep& shown_step(const bench::DecodeAnswer& answer) {
  const auto at = std::find_if(answer.steps.rbegin(), answer.steps.rend(),
                               [](const bench::DecodeStep& step) { return step.fits; });
  return at == answer.steps.rend() ? answer.steps.front() : *at;
}

std::string first_line(const bench::DecodeAnswer& answer) {
  std::string line = text::printable(answer.model) + " on " + answer.device + ", predicted: ";
  if (answer.steps.empty()) return line + "no batch was asked for\n";
  const bench::DecodeStep& last = shown_step(answer);
  if (answer.saturation_batch) {
    line += "attention has its DRAM bandwidth (" +
            percent(last.attention.bytes_per_second(), answer.peak_bytes_per_second) +
            " of the peak) from batch " + std::to_string(*answer.saturation_batch) + " on; ";
  }
  line += "at batch " + std::to_string(last.batch) + (last.fits ? "" : ", which does not fit,") +
          " a step takes " + milliseconds(last.step.seconds) + " ms (" +
          milliseconds(last.step.low_seconds) + " to " + milliseconds(last.step.high_seconds) +
          "), and " + formatted("%.0f %%", 100 * (1 - compute_share(last, answer))) +
          " of compute is idle";
  return line + "\n";
}

std::string steps_table(const bench::DecodeAnswer& answer, const Terminal& terminal) {
  Table table({{"batch", Align::right, false},
               {"step ms", Align::right, false},
               {"90 %", Align::right, false},
               {"tokens/s", Align::right, false},
               {"attention", Align::right, false},
               {"matmul", Align::right, false},
               {"other", Align::right, false},
               {"host", Align::right, false},
               {"FLOP/B", Align::right, false},
               {"DRAM", Align::right, false},
               {"", Align::left, false}});
  for (const bench::DecodeStep& step : answer.steps) {
    const double whole = step.parts_seconds();
    table.row({std::to_string(step.batch),
               milliseconds(step.step.seconds),
               milliseconds(step.step.low_seconds) + "-" + milliseconds(step.step.high_seconds),
               formatted("%.0f", static_cast<double>(step.batch) / step.step.seconds),
               percent(step.attention.time.seconds, whole),
               percent(step.matmul.time.seconds, whole),
               percent(step.other.time.seconds, whole),
               percent(step.host.seconds, whole),
               formatted("%.1f", step.attention.arithmetic_intensity()),
               percent(step.attention.bytes_per_second(), answer.peak_bytes_per_second),
               {step.fits ? "" : "does not fit", Style::bad}});
  }
  return table.render(terminal);
}

}  // namespace

std::string decode_text(const bench::DecodeAnswer& answer, const Terminal& terminal) {
  std::string words = first_line(answer) + "\n" + steps_table(answer, terminal);
  words +=
      "\nFLOP/B and DRAM are of the attention kernels: work a byte, and their share of the peak.\n";
  if (answer.points > 0) {
    words += "Steps are corrected by " + std::to_string(answer.points) +
             " measured points; shares and classes stay as predicted.\n";
  }
  words += std::to_string(answer.context) + " tokens a sequence, " + answer.dtype + ", weights " +
           format_bytes(answer.weights) + "; the memory holds " +
           std::to_string(answer.largest_batch) + " sequences.\n";
  if (!answer.steps.empty()) {
    const bench::DecodeStep& last = shown_step(answer);
    words += "attention: " + std::string(name_of(last.attention.provenance)) + ", " +
             last.attention.basis + ".\n";
    words += "matmul: " + std::string(name_of(last.matmul.provenance)) + ", " + last.matmul.basis +
             ".\n";
  }
  return words + "host and sampling: " + answer.engine + ", " + answer.engine_source + ".\n";
}

}  // namespace headroom::report
