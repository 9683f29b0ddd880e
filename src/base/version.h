// Which Headroom this is, for --version and for the files we write.
//
// The one source is project(VERSION) in the root CMakeLists.txt. Thread-safe, free.
#pragma once

#include <string_view>

namespace headroom {

// "major.minor.patch".
[[nodiscard]] std::string_view version() noexcept;

}  // namespace headroom
