// What became of a command under `headroom run`, as its processes told it.
//
// Every process of the command that imported torch leaves a report (docs/run.md); figures are of
// one device of one process. Nothing here is computed that the process did not measure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"

namespace headroom::run {

enum class Outcome {
  served,    // by our allocator
  recorded,  // by our allocator, which only recorded
  off,       // by PyTorch's, as asked
  nothing,   // the process used no CUDA
  refused,   // our allocator was not installed; the reason says why
};

struct DeviceFigures {
  int device = 0;
  std::string name;
  std::optional<Bytes> memory;
  std::optional<Bytes> peak_allocated;
  std::optional<Bytes> peak_reserved;
  // Reserved peak up to the switch to the plan, and from then on; none without a switch.
  std::optional<Bytes> reserved_before;
  std::optional<Bytes> reserved_after;
  int64_t requests = 0;  // while a plan served
  int64_t planned = 0;
  int64_t reused = 0;
  int64_t fallen_back = 0;
  int64_t iterations = 0;
  std::optional<Bytes> outside;  // used on the device and not ours
  std::string plan_source;       // "kept", "file", "made", "": none
  std::string plan_reason;       // why there is none, in the allocator's words
};

struct ProcessReport {
  Outcome outcome = Outcome::nothing;
  std::string reason;
  bool ended = false;  // it came to its own end, so these are the last figures
  int64_t pid = 0;
  std::string host;
  std::optional<int64_t> rank;
  int64_t world_size = 1;
  std::string torch_version;
  std::vector<std::string> recordings;
  std::vector<std::string> notes;
  std::vector<DeviceFigures> devices;
  // Columns of docs/formats/measurements.md, for --measure; what is not known is not there.
  std::vector<std::pair<std::string, std::string>> setting;
};

struct RunAnswer {
  std::vector<std::string> command;
  std::string mode;
  bool started = false;
  int exit_code = 0;   // the child's, 128 + its signal, 126 or 127 where it was not started
  int signal = 0;      // that ended the child; 0: none
  std::string reason;  // why it was not started
  std::vector<ProcessReport> processes;  // by rank, then process
  std::vector<std::string> notes;        // what could not be read, what was written

  [[nodiscard]] bool used_a_device() const;
};

}  // namespace headroom::run
