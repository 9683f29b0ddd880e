// What people call devices, taken apart into words that can be compared. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headroom::device {

// "NVIDIA A100-SXM4-80GB" and "a100 sxm 80 GB" both give {"80gb", "a100", "sxm"}: lower case,
// sorted, without makers' words that tell nothing apart. At most 16 words of the first 200 bytes.
[[nodiscard]] std::vector<std::string> name_words(std::string_view name);

// The same for words beside measurements: drops "2x" and "(...)", and reads "NVLink" as SXM.
[[nodiscard]] std::vector<std::string> measurement_words(std::string_view text);

}  // namespace headroom::device
