// The answer of `bench nongemm` for people and for programs. Pure; thread-safe.
#pragma once

#include <string>

#include "bench/nongemm.h"
#include "text/json.h"
#include "text/terminal.h"

namespace headroom::report {

// `folder`: where records and traces are kept; empty where nothing was measured now.
[[nodiscard]] std::string nongemm_text(const bench::NongemmAnswer& answer,
                                       const std::string& folder, const text::Terminal& terminal);
[[nodiscard]] text::Json nongemm_json(const bench::NongemmAnswer& answer,
                                      const std::string& folder);

// What the page says too.
[[nodiscard]] std::string nongemm_verdict(const bench::NongemmAnswer& answer);
[[nodiscard]] std::vector<std::string> nongemm_effects(const bench::NongemmAnswer& answer);
// "AMD EPYC, 2 threads, PyTorch 2.13.0".
[[nodiscard]] std::string nongemm_machine(const timing::Machine& machine);
[[nodiscard]] text::Json nongemm_row_json(const bench::NongemmRow& row);
[[nodiscard]] std::string nongemm_title(const std::string& model);
[[nodiscard]] std::string nongemm_setting_words(const bench::NongemmSetting& setting);
// The group that takes most beside GEMM and attention: "normalization 7 %"; "" where there is none.
[[nodiscard]] std::string largest_other_group(const bench::NongemmRow& row);
[[nodiscard]] std::string time_words(const bench::NongemmRow& row);
[[nodiscard]] std::string interval_words(const bench::NongemmRow& row);

}  // namespace headroom::report
