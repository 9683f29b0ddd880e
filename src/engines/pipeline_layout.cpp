#include "engines/pipeline_layout.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "text/parse_number.h"

namespace headroom::engines {

namespace {

constexpr size_t kMost = 4096;  // letters and bars, written out

// What stands behind a '*' at `at`, which is left behind its last digit.
std::optional<size_t> times_at(std::string_view words, size_t& at) {
  if (at >= words.size() || words[at] != '*') return 1;
  size_t end = ++at;
  while (end < words.size() && std::isdigit(static_cast<unsigned char>(words[end])) != 0) ++end;
  const auto times = text::parse_number<int64_t>(words.substr(at, end - at));
  at = end;
  if (!times || *times < 0 || *times > static_cast<int64_t>(kMost)) return std::nullopt;
  return static_cast<size_t>(*times);
}

bool append(std::string& to, std::string_view what, size_t times) {
  if (what.size() * times > kMost - std::min(to.size(), kMost)) return false;
  for (size_t i = 0; i < times; ++i) to += what;
  return true;
}

// One level of "(...)*n" or of "x*n" written out; nothing where it is too long or not closed.
std::optional<std::string> written_out(std::string_view words, bool groups) {
  std::string out;
  for (size_t at = 0; at < words.size();) {
    std::string_view item = words.substr(at, 1);
    if (groups && item == "(") {
      const size_t close = words.find(')', at);
      if (close == std::string_view::npos) return std::nullopt;
      item = words.substr(at + 1, close - at - 1);
      at = close + 1;
    } else {
      ++at;
      if (groups) {  // its own turn comes
        if (!append(out, item, 1)) return std::nullopt;
        continue;
      }
    }
    const auto times = times_at(words, at);
    if (!times || !append(out, item, *times)) return std::nullopt;
  }
  return out;
}

}  // namespace

Result<std::vector<int64_t>> read_pipeline_layout(std::string_view words, const std::string& file) {
  const auto error = [&](const char* what) {
    return Error{
        ErrorCode::bad_input,
        "--pipeline-model-parallel-layout '" + std::string(words.substr(0, 60)) + "' " + what, file,
        "such as Et*3|(tt|)*6L; multi-token prediction (m) is not modelled"};
  };
  std::string plain;
  std::ranges::copy_if(words.substr(0, kMost), std::back_inserter(plain),
                       [](char letter) { return letter != ','; });
  const auto groups = written_out(plain, true);
  const auto letters = groups ? written_out(*groups, false) : std::nullopt;
  if (!letters || words.size() > kMost) return error("is no layout");
  if (letters->empty() || letters->front() != 'E' || letters->back() != 'L' ||
      std::ranges::count(*letters, 'E') != 1 || std::ranges::count(*letters, 'L') != 1) {
    return error("does not go from one embedding (E) to one loss (L)");
  }
  std::vector<int64_t> layers{0};
  for (const char letter : *letters) {
    if (letter == 't') {
      ++layers.back();
    } else if (letter == '|') {
      layers.push_back(0);
    } else if (letter != 'E' && letter != 'L') {
      return error("has letters that are not known");
    }
  }
  return layers;
}

std::string pipeline_layout_words(const std::vector<int64_t>& layers) {
  std::string words = "E";
  for (size_t i = 0; i < layers.size(); ++i) {
    if (i > 0) words += '|';
    if (layers[i] > 0) words += "t*" + std::to_string(layers[i]);
  }
  return words + "L";
}

}  // namespace headroom::engines
