#include "base/beside.h"

#include <filesystem>

namespace headroom {

namespace fs = std::filesystem;

std::string program_path() {
  std::error_code ignored;
  return fs::read_symlink("/proc/self/exe", ignored).string();
}

std::optional<std::string> beside_program(std::span<const std::string_view> places,
                                          std::string_view mark) {
  std::error_code ignored;
  for (fs::path folder = fs::path(program_path()).parent_path(); !folder.empty();
       folder = folder.parent_path()) {
    for (const std::string_view place : places) {
      const fs::path candidate = folder / place;
      const fs::path file = mark.empty() ? candidate : candidate / mark;
      if (fs::is_regular_file(file, ignored)) return candidate.string();
    }
    if (folder == folder.root_path()) break;
  }
  return std::nullopt;
}

}  // namespace headroom
