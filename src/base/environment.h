// The environment of a child: ours, with some entries replaced or added.
//
// Reads `environ`; nobody may change it meanwhile. Linear.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace headroom {

// "NAME=value" strings, and the list of pointers that exec wants.
[[nodiscard]] std::vector<std::string> environment_with(
    const std::vector<std::pair<std::string, std::string>>& added);
// Ends with null; valid as long as `words` is neither changed nor gone.
[[nodiscard]] std::vector<char*> pointers_to(std::vector<std::string>& words);

// The variable of that name, or "" where there is none.
[[nodiscard]] std::string environment_value(const char* name);

}  // namespace headroom
