#include "report/devices.h"

#include "cli/deliver.h"
#include "cli/machine.h"
#include "cli/verb.h"
#include "report/device_predictions.h"

namespace headroom::cli {
namespace {

Result<int> run_devices(const Words& words, const Console& console) {
  HEADROOM_ASSIGN(const Machines machines, load_machines(words, console));
  std::vector<device::Device> shown = machines.catalogue.devices();
  const bool is_one = !words.operands.empty() || machines.calibration;
  if (is_one) {
    const std::string name =
        words.operands.empty() ? machines.calibration->device : words.operands.front();
    HEADROOM_ASSIGN(device::Device found, machines.catalogue.find(name));
    shown = {std::move(found)};
  }
  Forms forms;
  forms.text = [&](const text::Terminal& terminal) {
    if (!is_one) return report::devices_text(shown, terminal);
    return report::device_text(shown.front(), terminal) + "\n" +
           report::device_predictions_text(shown.front(), machines.timing, terminal);
  };
  forms.json = [&] {
    text::Json json = report::devices_json(shown);
    if (is_one) {
      json.set("predicted", report::device_predictions_json(shown.front(), machines.timing));
    }
    return json;
  };
  HEADROOM_TRY(deliver(forms, words, console));
  return kExitYes;
}

}  // namespace

Verb devices_verb() {
  Verb verb;
  verb.name = "devices";
  verb.summary = "the GPUs that are known, and what they can do";
  verb.operands = "[NAME]";
  verb.most_operands = 1;
  verb.examples = {
      {"headroom devices", "one line each"},
      {"headroom devices h100-sxm-80gb",
       "every figure of one, with where it comes from, and how well its operators are predicted"},
      {"headroom devices auto", "the GPU of this machine"},
      {"headroom devices h100-sxm-80gb --json -o mine.json",
       "a file to change, and to give back in $HEADROOM_DEVICES"},
  };
  verb.flags = {kCalibrationFlag, kJsonFlag, kOutputFlag, kQuietFlag, kNoColorFlag, kHelpFlag};
  verb.run = run_devices;
  return verb;
}

}  // namespace headroom::cli
