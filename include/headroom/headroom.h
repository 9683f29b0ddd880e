// Headroom for other programs: start here.
//
// libheadroom answers the questions of the `headroom` command from C++; this header says which
// version of it you have, and each question has a header of its own beside this one. Link
// `headroom::headroom` (CMake) or `headroom` (pkg-config). Needs C++20. The calls here are
// thread-safe and cost nothing.
#pragma once

#include <string_view>

// What libheadroom shows to programs that link it; everything else in it is hidden.
#define HEADROOM_API __attribute__((visibility("default")))

namespace headroom {

// The version of the library that is loaded, as "major.minor.patch".
[[nodiscard]] HEADROOM_API std::string_view library_version() noexcept;

}  // namespace headroom
