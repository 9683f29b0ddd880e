// What lies between the devices of a step: links within a machine, a network beyond it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/units.h"
#include "fit/question.h"
#include "timing/step_time.h"

namespace headroom::fit {

// Of one GPU: "ib-400g" and every other name that ends in a rate in Gbit/s, or "50GB/s".
// Worked: ib-400g is 400e9 / 8 = 50 GB/s.
Result<BytesPerSecond> network_rate(std::string_view link);

// `devices` on the question's nodes. An Error where they cannot be spread evenly, or nothing says
// what is between nodes.
Result<timing::Cluster> cluster_of(const FitQuestion& question, int64_t devices);

// Who takes part in its collectives.
[[nodiscard]] timing::Division division_of(const FitQuestion& question);

// The question with --global-batch made --grad-accum, for so many devices. An Error where it does
// not come out even, or where both were given.
Result<FitQuestion> with_accumulation(FitQuestion question, int64_t devices);

// The same for a search over ways to divide a step among so many, of which some give several
// devices the same sequences: where not every device can have its own, one micro-batch, and each
// way accumulates for itself.
Result<FitQuestion> with_accumulation_of_a_search(const FitQuestion& question, int64_t devices);

// GPUs of a machine, where nobody says.
inline constexpr int64_t kMachine = 8;

// Where nobody says how more GPUs than a machine has are joined: machines of eight on a network, or
// one machine where they are no whole number of those. What is assumed, in words; nothing where
// nothing is. REQUIRES: the question is about so many devices, or a search over them.
std::optional<std::string> assume_machines(int64_t devices, FitQuestion& question);

}  // namespace headroom::fit
