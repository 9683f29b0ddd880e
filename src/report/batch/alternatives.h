// What else the memory that B_opt sets free could be, and what would be with other settings or
// models (batch/freed.h, batch/what_if.h): for people, for programs and for a page.
#pragma once

#include <string>
#include <vector>

#include "batch/answer.h"
#include "report/page/html.h"
#include "text/json.h"
#include "text/terminal.h"

namespace headroom::report {

// Empty where nothing was predicted.
[[nodiscard]] std::string alternatives_text(const batch::BatchAnswer& answer,
                                            const text::Terminal& terminal);
// null where percentiles are no target.
[[nodiscard]] text::Json load_json(const std::optional<batch::LoadBest>& load);
[[nodiscard]] text::Json what_ifs_json(const std::vector<batch::WhatIf>& what_ifs);
[[nodiscard]] text::Json freed_json(const batch::FreedUses& uses);
[[nodiscard]] std::vector<Section> alternatives_sections(const batch::BatchAnswer& answer);

}  // namespace headroom::report
