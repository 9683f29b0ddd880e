#include "report/fit/words.h"

#include <algorithm>
#include <cmath>

#include "fit/device/oom_probability.h"
#include "fit/question.h"
#include "text/number.h"
#include "text/paragraph.h"
#include "text/utf8.h"

namespace headroom::report {

using text::formatted;

namespace {

Bytes magnitude(Bytes bytes) { return bytes.count < 0 ? Bytes(-bytes.count) : bytes; }

}  // namespace

std::string_view verdict_word(fit::Verdict verdict) {
  return verdict == fit::Verdict::at_risk ? "at risk" : fit::name_of(verdict);
}

std::string step_words(const std::string& model, int64_t batch, std::optional<int64_t> seq) {
  const std::string length = seq ? " x seq " + with_commas(*seq) : "";
  return model + " at batch " + with_commas(batch) + length + " a GPU";
}

std::string hardware_words(int64_t count, const std::string& device) {
  return with_commas(count) + " x " + device;
}

namespace {

std::string devices_of(const fit::DeviceMemory& device) {
  if (device.count == 1) return device.name;
  return text::formatted("each of %.0f x ", static_cast<double>(device.count)) + device.name;
}

}  // namespace

text::Style verdict_style(fit::Verdict verdict) {
  switch (verdict) {
    case fit::Verdict::yes:
      return text::Style::good;
    case fit::Verdict::at_risk:
      return text::Style::warning;
    case fit::Verdict::no:
      return text::Style::bad;
  }
  return text::Style::plain;
}

std::string verdict_line(fit::Verdict verdict, const std::string& sentence,
                         const text::Terminal& terminal) {
  const std::string word(verdict_word(verdict));
  // Colour comes after wrapping, so that escapes never count as width.
  const std::string line = wrapped(word + ": " + sentence, terminal);
  return text::paint(word, verdict_style(verdict), terminal.colour) + line.substr(word.size());
}

std::string answer_sentence(const fit::FitAnswer& answer) {
  std::string subject = answer.model;
  const std::string batch = fit::setting_of(answer.settings, "batch");
  const std::string seq = fit::setting_of(answer.settings, "seq");
  if (!batch.empty()) subject += " at batch " + batch;
  if (!seq.empty()) subject += (batch.empty() ? " at seq " : " x seq ") + seq;
  const std::string room = format_bytes(magnitude(answer.room.expected));
  const std::string device = devices_of(answer.device);
  switch (answer.verdict) {
    case fit::Verdict::yes:
      // What the device shows is no measure of the room where the cache takes all there is.
      if (answer.room.low <= fit::kLeastSegment) {
        return subject + " fits " + device + ": " + format_bytes(answer.memory.peak_allocated) +
               " in use at the peak, the rest is cache that can be given back";
      }
      return subject + " fits " + device + " with " + room + " of room";
    case fit::Verdict::at_risk:
      return subject + " may not fit " + device + ": " +
             (answer.room.expected.count >= 0 ? room + " of room expected"
                                              : room + " too little expected");
    case fit::Verdict::no:
      return subject + " does not fit " + device + ": " + room + " too little";
  }
  return subject;
}

std::string room_sentence(const fit::FitAnswer& answer) {
  const std::string low = format_bytes(magnitude(answer.room.low));
  const std::string high = format_bytes(magnitude(answer.room.high));
  if (answer.room.low.count > 0) return "between " + low + " and " + high + " of room";
  if (answer.room.high.count < 0) return "between " + high + " and " + low + " too little";
  return "between " + low + " too little and " + high + " of room";
}

std::string interval_words(const fit::Interval& interval) {
  std::string low = format_bytes(interval.low);
  const std::string high = format_bytes(interval.high);
  const size_t unit = low.find(' ');
  if (high.ends_with(std::string_view(low).substr(unit))) low.resize(unit);
  return low + " to " + high;
}

std::string place_words(const fit::PeakPlace& place) {
  std::string words = place.phase;
  for (const std::string& level : {place.module, place.op}) {
    if (!level.empty()) words += (words.empty() ? "" : ", ") + level;
  }
  return words;
}

std::string largest_words(const fit::Largest& largest) {
  if (largest.value == 0) return "none";
  return (largest.at_bound ? "at least " : "") + with_commas(largest.value);
}

std::string share_words(Bytes part, Bytes whole) {
  if (whole.count <= 0) return {};
  return formatted("%.1f %%",
                   100.0 * static_cast<double>(part.count) / static_cast<double>(whole.count));
}

std::string with_commas(int64_t count) {
  std::string digits = std::to_string(count);
  const size_t first = count < 0 ? 1 : 0;
  for (size_t at = digits.size(); at > first + 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

std::string rate_words(double per_second) {
  return per_second < 100 ? text::formatted("%.1f", per_second)
                          : with_commas(std::llround(per_second));
}

std::string count_words(int64_t count) {
  const auto value = static_cast<double>(count);
  if (count >= 1'000'000'000'000) return formatted("%.2f T", value / 1e12);
  if (count >= 1'000'000'000) return formatted("%.2f B", value / 1e9);
  if (count >= 1'000'000) return formatted("%.1f M", value / 1e6);
  return with_commas(count);
}

std::string signed_words(const std::optional<double>& percent) {
  return percent ? formatted("%+.2f %%", *percent) : "";
}

std::string size_words(const std::optional<double>& percent) {
  return percent ? formatted("%.2f %%", *percent) : "";
}

namespace {

struct TimeUnit {
  double seconds;
  const char* name;
};

TimeUnit unit_of(double seconds) {
  if (seconds >= 1 || seconds <= 0) return {1, " s"};
  return seconds >= 1e-3 ? TimeUnit{1e-3, " ms"} : TimeUnit{1e-6, " us"};
}

std::string in_unit(double seconds, const TimeUnit& unit) {
  const double value = seconds / unit.seconds;
  return formatted(value >= 1e6   ? "%.2e"
                   : value >= 100 ? "%.0f"
                   : value >= 10  ? "%.1f"
                                  : "%.2f",
                   value);
}

}  // namespace

std::string host_words(const fit::HostFigures& host) {
  return "of each process; " + format_bytes(host.requested) +
         " asked for, in powers of two where page-locked";
}

std::string seconds_words(double seconds) {
  const TimeUnit unit = unit_of(seconds);
  return in_unit(seconds, unit) + unit.name;
}

std::string seconds_interval_words(const fit::SecondsInterval& seconds) {
  const TimeUnit unit = unit_of(seconds.expected);
  return in_unit(seconds.low, unit) + " to " + in_unit(seconds.high, unit) + unit.name;
}

static_assert(fit::kPeaksMeasured == 331, "kOomBasis says how many");

std::string oom_words(double probability) {
  constexpr double kResolved = 0.01;
  if (probability < kResolved) return "< 1 %";
  if (probability > 1 - kResolved) return "> 99 %";
  return text::formatted("%.0f %%", 100 * probability);
}

std::string pace_words(const fit::StepTime& time) {
  if (time.tokens_per_second <= 0) return "";
  if (time.tokens_per_second < 100) return formatted("%.3g tokens/s", time.tokens_per_second);
  constexpr double kMost = 9e18;
  return with_commas(std::llround(std::min(time.tokens_per_second, kMost))) + " tokens/s";
}

namespace {

// "what run.sh says (--reduce-dtype fp32) peaks at 78.90 GiB: does not fit, by 15.81 GiB"
std::string written_words(const std::string& file, const fit::AsWritten& written) {
  std::string instead;
  for (const std::string& flag : written.instead) instead += (instead.empty() ? "" : ", ") + flag;
  const int64_t room = written.room.expected.count;
  std::string words = "what " + file + " says (" + instead + ") peaks at " +
                      format_bytes(written.peak_allocated) + ": ";
  switch (written.verdict) {
    case fit::Verdict::yes:
      return words + "fits, with " + format_bytes(Bytes(room)) + " of room";
    case fit::Verdict::at_risk:
      return words + "may not fit, OOM " + oom_words(written.oom_probability);
    case fit::Verdict::no:
      break;
  }
  return words + "does not fit, by " + format_bytes(Bytes(-room));
}

}  // namespace

std::vector<std::string> emitted_words(const fit::Emitted& emitted) {
  std::vector<std::string> lines{"wrote " + emitted.file, "run: " + emitted.command};
  if (emitted.as_written) lines.push_back(written_words(emitted.file, *emitted.as_written));
  lines.insert(lines.end(), emitted.notes.begin(), emitted.notes.end());
  std::string by_hand;
  for (const std::string& flag : emitted.by_hand)
    by_hand += (by_hand.empty() ? "--" : ", --") + flag;
  if (by_hand.empty()) return lines;
  if (emitted.kind == "megatron") {
    lines.push_back("to add to it: " + by_hand + ", whose values need a shell");
  } else {
    lines.push_back((emitted.kind == "torchtitan" ? "in torchtitan: what " : "in train.py: what ") +
                    by_hand + " say, no such file says");
  }
  return lines;
}

}  // namespace headroom::report
