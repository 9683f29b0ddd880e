// MethodRow: one way to divide a step, as answers list it, with what it needs and takes and why it
// is not the first.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/provenance.h"
#include "base/units.h"
#include "fit/answer.h"
#include "fit/prediction.h"
#include "fit/scenario/scenario.h"
#include "fit/search/precision.h"

namespace headroom::fit {

struct MethodRow {
  std::string method;              // "lora,zero2:8"
  std::string checkpointing;       // "none", "selective", "full"; empty where the question says it
  bool divides_sequences = false;  // --sequence-parallel true
  std::string offload;             // "optimizer"; empty where the question says it
  std::optional<Precision> precision;  // nothing where the question says it
  std::string schedule;                // of a pipeline: "zbv"; empty where the question says it
  FitQuestion question;                // that the row answers; --emit writes it
  std::string flags;                   // "--method zero2:8 --checkpointing full"
  std::string reason;  // why it cannot be asked of this model; all below is empty then
  int64_t batch = 1;   // sequences in a micro-batch
  int64_t grad_accum = 1;
  int64_t stage = 0;  // of a pipeline, whose figures they are
  Verdict verdict = Verdict::no;
  Bytes peak_allocated;
  Bytes peak_reserved;
  Interval device_used;
  ComponentBytes breakdown;  // at the peak; comes to device_used.expected
  Interval room;
  std::optional<HostFigures> host;       // of one process, where something is offloaded
  double oom_probability = 0;            // of a step on one of the devices (oom_probability.h)
  std::optional<Largest> largest_batch;  // a device; nothing for traced models
  Bytes sent;                            // by one device a step, around rings
  std::optional<StepTime> time;          // nothing where the device lacks a figure
  // No other that fits is as fast and leaves more room, or is faster and leaves as much.
  bool on_frontier = false;
  std::string why;          // it is not the first, in words
  std::string why_briefly;  // the same for a table's cell: "misses 3.88 GiB in backward"
  Provenance allocated_provenance = Provenance::counted;
  Provenance reserved_provenance = Provenance::counted;
  Provenance device_used_provenance = Provenance::datasheet;
};

// What is predicted of the scenario on one of its devices, and why it does not fit, where it does
// not. Largest batch, bytes sent and time are left as they are.
void take_prediction(const Scenario& scenario, const DetailedPrediction& detail, MethodRow& row);

// Which stage of so many the row is of; and says that it is this one that does not fit.
void name_stage(int64_t stage, int64_t stages, MethodRow& row);

// By one device in a step, around rings.
[[nodiscard]] Bytes sent_in(const Scenario& scenario, const step::StepTrace& trace);

// MethodRow::on_frontier of each, and why those that fit are not the first: where the time goes
// that it does not take or, where no time is known, what the order goes by then.
void mark_frontier(std::vector<MethodRow>& rows);
void explain_order(std::vector<MethodRow>& rows);

// yes before at_risk before no.
[[nodiscard]] int rank_of(Verdict verdict);

}  // namespace headroom::fit
