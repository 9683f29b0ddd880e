// An answer of `headroom batch` for people.
#pragma once

#include <string>
#include <vector>

#include "batch/answer.h"
#include "text/terminal.h"

namespace headroom::report {

// The first line is the answer.
[[nodiscard]] std::string batch_text(const batch::BatchAnswer& answer,
                                     const text::Terminal& terminal);
// The same line without colour, for pages and studies.
[[nodiscard]] std::string batch_sentence(const batch::BatchAnswer& answer);

// Whether the answer is a plain yes: a batch that meets the target, or rates that keep them.
[[nodiscard]] bool answers_plainly(const batch::BatchAnswer& answer);

// How the points were measured, where a server was driven.
[[nodiscard]] std::string live_sentence(const batch::LiveRecord& live);

// What the curve is of, why B_opt is no larger, and which batches stand out.
[[nodiscard]] std::string curve_words(const batch::BatchAnswer& answer);

// Those that are expected to give more than one server, or else the one that may, and what they
// fill. REQUIRES of the words: a host gap.
[[nodiscard]] std::vector<const batch::Replicas*> replicas_shown(const batch::BatchAnswer& answer);
[[nodiscard]] std::string replicas_words(const batch::BatchAnswer& answer);

// What an hour costs, and what that is of.
[[nodiscard]] std::string price_sentence(const batch::PriceTable& prices);

// "B_opt 96", "2 replicas at B_opt, MPS, misses the target".
[[nodiscard]] std::string priced_setting(const batch::PriceRow& row);

// " on each of 4 GPUs"; empty for one.
[[nodiscard]] std::string on_each_gpu(const batch::BatchAnswer& answer);

// Whether they fit, and miss the target.
[[nodiscard]] std::string replicas_verdict(const batch::Replicas& replicas);

}  // namespace headroom::report
