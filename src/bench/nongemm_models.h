// The models of `bench nongemm`: how the runner makes each, and what it is given.
//
// The table (data/nongemm_models.json) is inside the program; configurations that data/models.json
// has are taken from there. Parsed once on first use, then only read: any thread may ask.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/json.h"

namespace headroom::bench {

struct NongemmModel {
  std::string name;                   // "gpt2"
  std::string title;                  // "GPT-2"
  std::string set;                    // "paper", "today", or "" for one of the user's
  std::optional<int64_t> parameters;  // as published
  std::string source;                 // where its inputs are from
  bool is_file = false;               // of ONNX, which its own engine alone runs
  text::Json recipe;                  // what the runner is told
};

[[nodiscard]] const std::vector<NongemmModel>& nongemm_models();

// A name of the table; else whatever model::resolve_model() finds, FILE.py:FUNCTION or FILE.onnx,
// given `tokens` tokens (images where it takes those).
Result<NongemmModel> find_nongemm_model(std::string_view name, int64_t tokens);

}  // namespace headroom::bench
