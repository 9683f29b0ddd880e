// What every room's tests may ask for: the repository's own files, and other people's data.
#pragma once

#include <filesystem>
#include <string>

namespace headroom::tests {

// The root of the repository that these tests were built from.
[[nodiscard]] std::string source_dir();

// Other people's measurements and traces: HEADROOM_DATA, or where they lie beside the repository.
// They may be absent.
[[nodiscard]] std::filesystem::path data_dir();

}  // namespace headroom::tests
