// Shapes and types of an operator's inputs in the form that a trace keeps them
// (TraceEvent::detail), from the words that execution traces have for them.
//
// Pure, thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace headroom::formats {

// Of JSON: "[[4,8],[]]" and ["Tensor(float)","Int"] are "[[4,8],[]] [\"float\",\"Scalar\"]"; ""
// where they are not as many, or not lists.
std::string operator_detail(std::string_view shapes, std::string_view types);

// A list as Python's str() writes it, as JSON: single quotes, None, True, False. What is neither
// comes out as no JSON.
std::string json_of_python(std::string_view text);

}  // namespace headroom::formats
