// Words and names that the forms of an ops answer share.
#pragma once

#include <string>
#include <string_view>

#include "ops/answer.h"

namespace headroom::report {

inline constexpr int kNoteIndent = 2;  // of the lines that a note goes on with in a narrow terminal

// Four figures, whatever the size.
[[nodiscard]] std::string milliseconds(double ms);
// With one decimal.
[[nodiscard]] std::string percent_words(double share);
[[nodiscard]] const ops::GroupShare* find_group(const ops::Accounting& accounting,
                                                std::string_view name);
// The name of a group's colour in page.css.
[[nodiscard]] std::string_view group_colour(std::string_view group);
// "datasheet", or "bandwidth 8 TB/s as given, else datasheet".
[[nodiscard]] std::string limits_words(const ops::OperatorRoofline& roofline);
// Whether the horizon can be believed: the replay of the unchanged run is near to the run.
[[nodiscard]] bool is_replay_trusted(const ops::OpsAnswer& answer);
// "the replay of the run as it was is +0.3 % off what was measured". REQUIRES: there is a replay.
[[nodiscard]] std::string replay_words(const ops::OpsAnswer& answer);
// "Most would help: host twice as fast 1.54x, ...", without changes that no one can make; or "".
[[nodiscard]] std::string best_changes_words(const ops::OpsAnswer& answer);
[[nodiscard]] std::string_view bound_name(ops::Bound bound);
// "the host: the device is idle 83.8 % of the time, most of it ...", the answer's first sentence.
[[nodiscard]] std::string bound_words(const ops::OpsAnswer& answer);

}  // namespace headroom::report
