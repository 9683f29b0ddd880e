// Why PyTorch ran out of memory, told from the message alone: who holds what of the device, which
// of them stands in the way, and what to do about it.
//
// The culprit is what would have let the request through, had it not been held; what the tensors
// hold is named only where nothing else is large enough. Pure; linear in the text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/provenance.h"
#include "base/result.h"
#include "device/catalogue.h"
#include "formats/oom_message.h"

namespace headroom::pack {

enum class OomCulprit : uint8_t {
  request,          // one tensor larger than the device, or than all others together
  memory_fraction,  // a limit that was set for this process
  fragmentation,    // reserved by PyTorch, without a tensor in it
  private_pools,    // the same inside pools of CUDA graphs
  other_process,
  outside,     // of this process, beside PyTorch's allocator: context, NCCL, libraries
  not_listed,  // outside or another process; the message does not tell which
  was_free,    // nobody: as much as was asked for was free when the message was written
  model,       // the tensors themselves
  host,        // the host's memory ran out, not the device's
  not_told,    // a message without figures
};

// Somebody who holds a part of the device.
struct OomHolder {
  std::string name;  // "tensors", "unallocated", "private_pools", "outside", "process 123", ...
  std::string what;  // for people
  Bytes bytes;
  double share_pct = 0;  // of the device
};

struct BytesRange {
  Bytes low;
  Bytes expected;
  Bytes high;
};

struct OomCase {
  formats::OomMessage message;
  OomCulprit culprit = OomCulprit::not_told;
  // What was missing for the request; the range is the rounding of the message's figures. Below
  // zero where enough was free.
  std::optional<BytesRange> short_by;
  std::optional<Bytes> culprit_bytes;  // what the culprit holds and need not
  std::vector<OomHolder> holders;      // the largest first, then what is free
  std::string verdict;                 // one sentence
  std::vector<std::string> advice;     // what helps most first
  std::vector<std::string> notes;      // what was assumed
};

struct OomAnswer {
  std::string file;
  std::vector<OomCase> cases;  // one a different message, the first that failed first

  // A message was cut, so this is about a part of it.
  [[nodiscard]] bool is_partial() const;
};

// `catalogue` says what a process takes of a device before its first tensor.
Result<OomAnswer> explain_oom(std::string_view text, const std::string& file,
                              const device::DeviceCatalogue& catalogue);
// Of a file, or standard input ("-"), with the devices that DeviceCatalogue::load() knows.
Result<OomAnswer> explain_oom_file(const std::string& file);

// "fragmentation", "other_process", ...: the JSON value.
[[nodiscard]] std::string_view name_of(OomCulprit culprit);

}  // namespace headroom::pack
