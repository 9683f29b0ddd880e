// The sentences of a pack answer that text and pages share, so that both say the same.
//
// Pure functions of the answer; thread-safe. Names in them are as files give them.
#pragma once

#include <string>

#include "pack/answer.h"

namespace headroom::report {

// "0.00 %" where there is no difference; more figures where there is a small one.
[[nodiscard]] std::string gap_words(double percent);

// "9.5 % of the 822.0 MiB reserved at the peak was lost to fragmentation (78.29 MiB)".
[[nodiscard]] std::string loss_sentence(const pack::LossAtPeak& loss);

// "743.7 MiB hold the 1,074 requests: no plan needs less"; with " of run.pickle" where it is asked
// for.
[[nodiscard]] std::string plan_sentence(const pack::PackAnswer& answer, bool names_file);

// "after entry 8,231 of 19,430, 0.12 s after the first, at optim/adam.py:80 step". REQUIRES:
// answer.loss and answer.recording.
[[nodiscard]] std::string moment_words(const pack::PackAnswer& answer);

// What `used` and `lost` are of, as they stand side by side: "used: the most that lived over the
// most reserved, whenever each was; lost: after entry 8,231 alone". REQUIRES: answer.loss.
[[nodiscard]] std::string used_words(const pack::PackAnswer& answer);

// "14 of optim/adam.py:80 step (1.20 GiB), 2 of ...": who holds a segment, at most `most` of them.
[[nodiscard]] std::string holder_words(const pack::StrandedSegment& segment,
                                       const pack::SiteNames& sites, size_t most);

// What to put behind PYTORCH_CUDA_ALLOC_CONF, with the limit that it needs; or what it is instead.
[[nodiscard]] std::string setting_words(const pack::AllocatorFigures& figures);

// The best setting that saves something, to be copied, and what it saves; "" where none does.
// Nothing to be copied where it was set already.
[[nodiscard]] std::string setting_command(const pack::PackAnswer& answer);
[[nodiscard]] std::string setting_gain(const pack::PackAnswer& answer);
// What was set when it was recorded; "" for the defaults, and where it is not known.
[[nodiscard]] std::string recorded_setting(const pack::PackAnswer& answer);

// "0x7fdd1c000000".
[[nodiscard]] std::string hex_words(int64_t address);

}  // namespace headroom::report
