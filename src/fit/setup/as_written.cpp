#include "fit/setup/as_written.h"

#include <string>
#include <utility>

#include "base/file.h"
#include "fit/fit.h"
#include "fit/scenario/zero.h"
#include "fit/setup/setup_file.h"

namespace headroom::fit {

namespace {

// The file's words come before those that were said beside it: it is what will run.
Result<FitQuestion> question_as_written(const FitQuestion& beside, const FitQuestion& asked,
                                        const std::string& file) {
  HEADROOM_ASSIGN(const std::string content, read_file(file, kMostSetup));
  BesideSetup said{.method = "", .gpus = devices_of(asked), .read = {}};
  if (asked.method != Method::full) said.method = method_word(asked);
  HEADROOM_ASSIGN(const SetupFlags setup, flags_of_setup(content, file, said));
  FitQuestion question = beside;
  for (const auto& [name, value] : setup.flags) HEADROOM_TRY(question.set(name, value));
  return question;
}

// "--reduce-dtype fp32": of each setting that is another.
std::vector<std::string> differences(const FitQuestion& asked, const FitQuestion& written) {
  const std::vector<Setting> before = settings_of(asked);
  std::vector<std::string> flags;
  for (const Setting& setting : settings_of(written)) {
    if (setting_of(before, setting.name) == setting.value) continue;
    flags.push_back("--" + setting.name + " " + setting.value);
  }
  return flags;
}

Result<std::optional<AsWritten>> as_written(const FitQuestion& asked, const FitQuestion& beside,
                                            const std::string& file) {
  HEADROOM_ASSIGN(FitQuestion question, question_as_written(beside, asked, file));
  std::vector<std::string> instead =
      differences(as_deepspeed_runs(asked), as_deepspeed_runs(question));
  if (instead.empty()) return std::optional<AsWritten>();
  question.search = question.timeline = false;
  question.events.clear();
  question.placements.clear();
  HEADROOM_ASSIGN(const FitAnswer answered, answer(question));
  return std::optional(AsWritten{.instead = std::move(instead),
                                 .peak_allocated = answered.memory.peak_allocated,
                                 .device_used = answered.memory.device_used,
                                 .room = answered.room,
                                 .verdict = answered.verdict,
                                 .oom_probability = answered.oom_probability});
}

}  // namespace

void predict_written(const FitQuestion& asked, const FitQuestion& beside, Emitted& emitted) {
  auto written = as_written(asked, beside, emitted.file);
  if (written) {
    emitted.as_written = std::move(*written);
  } else {
    emitted.notes.push_back("whether it fits as " + emitted.file +
                            " says cannot be told: " + written.error().message);
  }
}

}  // namespace headroom::fit
