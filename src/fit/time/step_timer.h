// StepTimer: how long a scenario's step takes, by the laws of timing.
//
// Made once for an answer (the laws are read, about a millisecond) and then only read, so any
// number of threads may ask; each time is some tenths of a millisecond.
#pragma once

#include <string>

#include "base/result.h"
#include "fit/answer.h"
#include "fit/scenario/scenario.h"
#include "step/trace.h"
#include "timing/step_replay.h"
#include "timing/step_time.h"
#include "timing/timing_model.h"

namespace headroom::fit {

struct TimedStep {
  StepTime time;
  double micro_batch_seconds = 0;
};

// Of which neither can be done beside another of its kind.
struct BusySeconds {
  // Kernels, and the collectives that they stand still for (timing::StepTime::blocking_seconds).
  double device = 0;
  double host = 0;  // launches
};

class StepTimer {
 public:
  // With what `calibration` measured (a file of `bench device`; one of other things adds nothing);
  // empty: the laws alone.
  static Result<StepTimer> make(const std::string& calibration);

  // On which device operators were measured; empty: on none.
  [[nodiscard]] const std::string& measured_device() const { return measured_device_; }

  // What steps of that question add to their kernels; null where no file says it.
  [[nodiscard]] const timing::InStep* residual_of(const FitQuestion& question) const;

  // `trace` is of the scenario's step, with its calls. An Error where a law lacks a figure of the
  // device: whoever asks about memory can do without.
  [[nodiscard]] Result<StepTime> time_of(const Scenario& scenario,
                                         const step::StepTrace& trace) const;
  // With what each micro-batch adds to that; of a pipeline's stage without its waiting for others.
  [[nodiscard]] Result<TimedStep> timed(const Scenario& scenario,
                                        const step::StepTrace& trace) const;
  // What the trace's last step takes at the least, whatever else is sent beside it. Each part adds
  // up: a layer or a micro-batch more adds the same to every step that has those calls.
  [[nodiscard]] Result<BusySeconds> busy_seconds(const Scenario& scenario,
                                                 const step::StepTrace& trace) const;

 private:
  Result<timing::StepTime> priced(const Scenario& scenario, const step::StepTrace& trace,
                                  const timing::RepeatedCalls& repeated) const;
  Result<double> micro_batch_seconds(const Scenario& scenario, const step::StepTrace& trace) const;
  Result<double> one_more(const Scenario& scenario, const step::StepTrace& trace) const;
  explicit StepTimer(timing::TimingModel model) : model_(std::move(model)) {}

  timing::TimingModel model_;
  std::string measured_device_;
};

// Which calls of the trace are those of a group of micro-batches, and how often a step with all of
// them runs those; none where all were simulated (kSimulatedMicroBatches).
Result<timing::RepeatedCalls> repeated_calls(const Scenario& scenario,
                                             const step::StepTrace& trace);

}  // namespace headroom::fit
