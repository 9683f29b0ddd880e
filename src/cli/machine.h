// The devices and timing laws that a verb works with: ours, the user's, and --calibration's.
//
// For verbs that take kCalibrationFlag. Milliseconds; thread-safe.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "cli/console.h"
#include "cli/flags.h"
#include "device/catalogue.h"
#include "engines/serving_engine.h"
#include "operator/dtype.h"
#include "timing/calibration.h"
#include "timing/timing_model.h"

namespace headroom::cli {

inline constexpr Flag kCalibrationFlag{
    "calibration", "FILE", "what `headroom bench device` measured: its device, and times by it"};

struct Machines {
  device::DeviceCatalogue catalogue;
  timing::TimingModel timing;
  std::optional<timing::Calibration> calibration;
  // The machine of the calibration, where --device names none; else "auto".
  [[nodiscard]] std::string device_for(const Words& words) const;
};

// "vllm", or with the version whose host and sampling are to be predicted: "vllm@0.6".
struct AskedEngine {
  engines::ServingEngine engine{};
  std::string law;      // of that version's host, by name; "": of today's engines
  std::string version;  // to be started, whole: "0.6.3"; "": today's
};
// A usage Error about words that are neither.
Result<AskedEngine> read_engine(const std::string& words, const timing::TimingModel& model);

// Who says that a calibration is of another machine than this one.
enum class OtherMachine { console, answer };
// An Error about one of the user's files. Says so where the calibration is of another device than
// --device names.
Result<Machines> load_machines(const Words& words, const Console& console,
                               OtherMachine told_by = OtherMachine::console);

// Says so where a processor was calibrated that this machine does not have: what follows is of that
// one. A GPU's may be asked about anywhere.
void note_other_machine(const timing::Calibration& calibration, const Console& console);

// --dtype: the type of weights, and of a cache; `otherwise` without the flag.
Result<op::DType> dtype_of(const Words& words, op::DType otherwise);

}  // namespace headroom::cli
