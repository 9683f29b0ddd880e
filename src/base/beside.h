// Our own other parts: where they lie, seen from the program that runs.
//
// In an installed tree they stand under the prefix (share/headroom/python, lib), in a checkout in
// its folders and in the build folder; so every folder above the program is asked in turn, the
// nearest first. A few stat() calls; thread-safe.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace headroom {

// The nearest of FOLDER/places[i] that is there and holds `mark` (a file in it; "" where the place
// is the file itself), FOLDER being those above our program.
[[nodiscard]] std::optional<std::string> beside_program(std::span<const std::string_view> places,
                                                        std::string_view mark = "");
// Our program's own path, or "" where /proc does not say.
[[nodiscard]] std::string program_path();

}  // namespace headroom
