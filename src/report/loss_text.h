// What was lost at the peak of a recorded run, as text for a terminal: the moment, the segments
// that strand most with who holds them, and the call sites.
//
// Pure, thread-safe.
#pragma once

#include <string>

#include "pack/answer.h"
#include "text/terminal.h"

namespace headroom::report {

// Nothing where the answer has no loss.
[[nodiscard]] std::string loss_text(const pack::PackAnswer& answer, const text::Terminal& terminal);

// "after entry 8,231 of 19,430, 0.12 s after the first, at optim/adam.py:80 step". REQUIRES:
// answer.loss and answer.recording. Names come from the file as they are.
[[nodiscard]] std::string moment_words(const pack::PackAnswer& answer);

// "14 of optim/adam.py:80 step (1.20 GiB), 2 of ...": who holds a segment, at most `most` of them.
[[nodiscard]] std::string holder_words(const pack::StrandedSegment& segment,
                                       const pack::SiteNames& sites, size_t most);

}  // namespace headroom::report
