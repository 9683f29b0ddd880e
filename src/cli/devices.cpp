#include "report/devices.h"

#include "cli/deliver.h"
#include "cli/verb.h"
#include "device/catalogue.h"

namespace headroom::cli {
namespace {

Result<int> run_devices(const Words& words, const Console& console) {
  HEADROOM_ASSIGN(const device::DeviceCatalogue catalogue, device::DeviceCatalogue::load());
  std::vector<device::Device> shown = catalogue.devices();
  if (!words.operands.empty()) {
    HEADROOM_ASSIGN(device::Device found, catalogue.find(words.operands.front()));
    shown = {std::move(found)};
  }
  Forms forms;
  forms.text = [&](const text::Terminal& terminal) {
    return words.operands.empty() ? report::devices_text(shown, terminal)
                                  : report::device_text(shown.front(), terminal);
  };
  forms.json = [&] { return report::devices_json(shown); };
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
      {"headroom devices h100-sxm-80gb", "every figure of one, with where it comes from"},
      {"headroom devices auto", "the GPU of this machine"},
      {"headroom devices h100-sxm-80gb --json -o mine.json",
       "a file to change, and to give back in $HEADROOM_DEVICES"},
  };
  verb.flags = {kJsonFlag, kOutputFlag, kQuietFlag, kNoColorFlag, kHelpFlag};
  verb.run = run_devices;
  return verb;
}

}  // namespace headroom::cli
