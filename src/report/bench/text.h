// The answer of `bench decode` for people: the answer first, then a line a batch.
//
// Pure; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "bench/decode.h"
#include "text/terminal.h"

namespace headroom::report {

// `folder`: where records and traces are kept; empty where nothing was measured now.
[[nodiscard]] std::string decode_text(const bench::DecodeAnswer& answer, const std::string& folder,
                                      const text::Terminal& terminal);

// What the page says too: the answer's first sentence, and a line "figure: where it is from" each.
[[nodiscard]] std::string decode_sentence(const bench::DecodeAnswer& answer);
[[nodiscard]] std::vector<std::string> decode_sources(const bench::DecodeAnswer& answer);
// The largest batch that fits; the smallest where none does, null without steps.
[[nodiscard]] const bench::DecodeStep* decode_shown_step(const bench::DecodeAnswer& answer);
// Of the peak, what products and attention do in a step.
[[nodiscard]] double decode_compute_share(const bench::DecodeStep& step,
                                          const bench::DecodeAnswer& answer);

}  // namespace headroom::report
