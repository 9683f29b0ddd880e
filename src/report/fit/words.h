// The sentences of a fit answer that text and pages share, so that both say the same.
//
// Pure functions of the answer; thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fit/answer.h"
#include "text/terminal.h"

namespace headroom::report {

// "yes", "at risk", "no": for people. The tone of a page and JSON use fit::name_of.
[[nodiscard]] std::string_view verdict_word(fit::Verdict verdict);

[[nodiscard]] text::Style verdict_style(fit::Verdict verdict);

// The first line of an answer: "yes: SENTENCE", the verdict in its colour.
[[nodiscard]] std::string verdict_line(fit::Verdict verdict, const std::string& sentence,
                                       const text::Terminal& terminal);

// What follows the verdict in the first line: "gpt2 at batch 4 x seq 1024 fits a100-sxm-80gb with
// 61.20 GiB of room".
[[nodiscard]] std::string answer_sentence(const fit::FitAnswer& answer);

// "between 60.90 and 61.50 GiB of room (90 % interval)", or what is missing.
[[nodiscard]] std::string room_sentence(const fit::FitAnswer& answer);

// "gpt2 at batch 4 x seq 1024 a GPU"; without a length where a sequence is no tokens.
[[nodiscard]] std::string step_words(const std::string& model, int64_t batch,
                                     std::optional<int64_t> seq);
// "4 x a100-sxm-80gb".
[[nodiscard]] std::string hardware_words(int64_t count, const std::string& device);

// "61.20 to 62.40 GiB".
[[nodiscard]] std::string interval_words(const fit::Interval& interval);

// "of each process; 12.30 GiB asked for, in powers of two where page-locked".
[[nodiscard]] std::string host_words(const fit::HostFigures& host);

// "4.73 s", "118 ms", "32.1 us".
[[nodiscard]] std::string seconds_words(double seconds);
// "4.20 to 5.26 s".
[[nodiscard]] std::string seconds_interval_words(const fit::SecondsInterval& seconds);
// "3,462 tokens/s"; "" where a sequence is no tokens.
[[nodiscard]] std::string pace_words(const fit::StepTime& time);

// "wrote accelerate.yaml; run: accelerate launch ...", and what is left to a script.
[[nodiscard]] std::vector<std::string> emitted_words(const fit::Emitted& emitted);

// "27 %" of out of memory; "< 1 %" and "> 99 %" where what was measured tells no more.
[[nodiscard]] std::string oom_words(double probability);
// What that follows from.
inline constexpr std::string_view kOomBasis =
    "of a step on one GPU, from the interval of the context and from 331 measured peaks beside the "
    "predicted (docs/measurements/2026-11-22-fit-oom)";

// "forward, model.layers.31.mlp, aten::mm": the levels that there are.
[[nodiscard]] std::string place_words(const fit::PeakPlace& place);

// "12", "at least 4096" when the search ended at its bound, "none" for 0.
[[nodiscard]] std::string largest_words(const fit::Largest& largest);

// "42.1 %" of a whole; "" when the whole is nothing.
[[nodiscard]] std::string share_words(Bytes part, Bytes whole);

// "7,241,732,096".
[[nodiscard]] std::string with_commas(int64_t count);
// "12,345" of a second; "18.3" below a hundred.
[[nodiscard]] std::string rate_words(double per_second);

// "7.24 B", "124 M": a count of parameters.
[[nodiscard]] std::string count_words(int64_t count);

// "+0.41 %": a difference; "" where there is none.
[[nodiscard]] std::string signed_words(const std::optional<double>& percent);

// "0.41 %": how large it is, where the direction does not matter.
[[nodiscard]] std::string size_words(const std::optional<double>& percent);

}  // namespace headroom::report
