// `headroom fit --gpus N`: every way to divide a step among N devices, and the one to begin with.
//
// Candidates are DDP, ZeRO 1 and 2, FSDP2 and FSDP2 in groups (hybrid sharding, by every divisor of
// N), each without recomputation, with selective and with full recomputation, where the question
// leaves that open. Each is predicted as fit::answer() would predict it, so what it needs is as
// sure as there. Their order is not a prediction of time, which is not there yet: what fits comes
// first, of that what recomputes less (a third of the time at most), then what sends less, then
// what needs less beside PyTorch: DDP, ZeRO, FSDP.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "fit/answer.h"
#include "fit/question.h"

namespace headroom::fit {

inline constexpr int64_t kMostGpus = 65536;

struct MethodRow {
  std::string method;         // "lora,zero2:8"
  std::string checkpointing;  // "none", "selective", "full"; empty where the question says it
  std::string flags;          // "--method zero2:8 --checkpointing full"
  std::string reason;         // why it cannot be asked of this model; all below is empty then
  Verdict verdict = Verdict::no;
  Bytes peak_allocated;
  Bytes peak_reserved;
  Interval device_used;
  Interval room;
  std::optional<Largest> largest_batch;  // a device; nothing for traced models
  Bytes sent;                            // by one device a step (bytes_sent)
  Provenance allocated_provenance = Provenance::counted;
  Provenance reserved_provenance = Provenance::counted;
  Provenance device_used_provenance = Provenance::datasheet;
};

struct MethodsAnswer {
  std::string model;
  int64_t parameter_count = 0;
  int64_t trainable_count = 0;
  DeviceMemory device;
  int64_t batch = 1;           // a device and micro-batch
  std::optional<int64_t> seq;  // nothing where the model's config says how long an input is
  int64_t grad_accum = 1;
  std::vector<MethodRow> rows;  // the one to begin with first, those that cannot be asked last
  std::vector<std::string> notes;
  std::vector<std::string> warnings;
  std::vector<std::string> assumptions;  // each makes figures extrapolated

  // Of the one to begin with; no where none can be asked.
  [[nodiscard]] Verdict verdict() const {
    return rows.empty() || !rows.front().reason.empty() ? Verdict::no : rows.front().verdict;
  }
};

// The words of --method for each way to divide among `gpus`: "ddp:8", "fsdp2:4,replicate:2", ...
[[nodiscard]] std::vector<std::string> divisions_among(int64_t gpus);

// What one device sends in an optimizer's step under the question's division, in bytes, about: a
// ring's (n - 1) / n of each all-gather and reduce-scatter, twice that of an all-reduce; padding
// and the parts that FSDP keeps gathered between forward and backward are left out. Source: ZeRO
// (arXiv 1910.02054), section 7.
[[nodiscard]] Bytes bytes_sent(const FitQuestion& question, int64_t parameters, int64_t trainable);

// The question's own division must be none. REQUIRES: 2 <= gpus <= kMostGpus. Some hundred
// milliseconds for a 7B model; both cores.
Result<MethodsAnswer> choose_method(const FitQuestion& question, int64_t gpus);

}  // namespace headroom::fit
