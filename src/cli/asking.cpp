#include "cli/asking.h"

#include <algorithm>

#include "cli/machine.h"
#include "device/detect.h"
#include "timing/calibration.h"

namespace headroom::cli {
namespace {

// Taken where nobody names a device and this machine has none; said on stderr.
constexpr std::string_view kStatedDevice = "a100-sxm-80gb";

bool is_question_flag(std::string_view name) {
  const auto flags = fit::question_flags();
  return std::any_of(flags.begin(), flags.end(),
                     [&](const fit::QuestionFlag& flag) { return flag.name == name; });
}

}  // namespace

std::vector<Flag> question_and(std::vector<Flag> more) {
  // Flags hold views, and defaults are put together here.
  static const std::vector<std::string> kHelps = [] {
    std::vector<std::string> helps;
    for (const fit::QuestionFlag& flag : fit::question_flags()) {
      const std::string standard = flag.value.empty() ? "" : fit::default_of(flag.name);
      helps.push_back(std::string(flag.help) + (standard.empty() ? "" : " [" + standard + "]"));
    }
    return helps;
  }();
  std::vector<Flag> flags;
  for (const fit::QuestionFlag& flag : fit::question_flags()) {
    flags.push_back({flag.name, flag.value, kHelps[flags.size()]});
  }
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

Result<fit::FitQuestion> question_of(const Words& words, const Console& console) {
  fit::FitQuestion question;
  if (words.operands.empty()) {
    return Error{
        ErrorCode::usage, "which model?", "",
        "a Hugging Face id such as openai-community/gpt2, a config.json, or FILE.py:FUNCTION"};
  }
  question.model = words.operands.front();
  if (question.model.ends_with(".py")) {
    return Error{ErrorCode::usage, "a Python file needs a function that returns the module",
                 question.model, question.model + ":build, say; docs/examples/traced has some"};
  }
  for (const auto& [name, value] : words.flags) {
    if (is_question_flag(name)) HEADROOM_TRY(question.set(name, value));
  }
  for (const char* const file : {"events", "placements"}) {
    if (words.value(file) != "-") continue;
    return Error{ErrorCode::usage, "standard output has the answer", std::string("--") + file,
                 "name a file"};
  }
  if (!question.calibration.empty()) {
    HEADROOM_ASSIGN(const auto measured, timing::find_calibration(question.calibration));
    if (measured) note_other_machine(*measured, console);
    if (measured && question.device.empty()) question.device = measured->device;
  }
  if (question.device.empty()) {
    question.device = device::detect_gpus() ? "auto" : kStatedDevice;
    if (question.device != "auto") {
      console.note("no --device given and no GPU here: " + question.device + " is taken");
    }
  }
  return question;
}

}  // namespace headroom::cli
