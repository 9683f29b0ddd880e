#include "base/python.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "base/beside.h"
#include "base/environment.h"

namespace headroom {

namespace {

namespace fs = std::filesystem;

constexpr size_t kLinesMax = 10;
constexpr std::string_view kMark = "headroom: ";

std::string interpreter(const std::string& package) {
  if (std::string named = environment_value("HEADROOM_PYTHON"); !named.empty()) return named;
  const std::string beside = (fs::path(package).parent_path() / ".venv/bin/python").string();
  for (const std::string& python : {std::string(".venv/bin/python"), beside}) {
    if (access(python.c_str(), X_OK) == 0) return python;
  }
  return "python3";
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    if (end > 0) lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace

Result<ProcessOptions> python_module(std::string_view module, std::vector<std::string> arguments) {
  // PREFIX/share/headroom/python in an installed tree, or the checkout that we were built in.
  static constexpr std::array<std::string_view, 2> kPlaces{"share/headroom/python", "python"};
  const auto package = beside_program(kPlaces, "headroom/__init__.py");
  if (!package) {
    return Error{ErrorCode::unavailable, "Headroom's Python package is not beside its program",
                 program_path(), "install both with `cmake --install`, or run from the checkout"};
  }
  ProcessOptions options;
  options.arguments = {interpreter(*package), "-m", "headroom." + std::string(module)};
  for (std::string& argument : arguments) options.arguments.push_back(std::move(argument));
  const std::string theirs = environment_value("PYTHONPATH");
  options.environment = {{"PYTHONPATH", *package + (theirs.empty() ? "" : ":" + theirs)},
                         {"PYTHONDONTWRITEBYTECODE", "1"}};
  return options;
}

std::vector<std::string_view> last_words(std::string_view spoken) {
  std::vector<std::string_view> lines = lines_of(spoken);
  size_t first = lines.size();
  while (first > 0 && !lines[first - 1].starts_with(kMark)) --first;
  if (first > 0) {
    lines.erase(lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(first - 1));
    lines.front().remove_prefix(kMark.size());
    if (lines.size() > kLinesMax) lines.resize(kLinesMax);
  } else if (lines.size() > kLinesMax) {
    lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(kLinesMax));
  }
  return lines;
}

}  // namespace headroom
