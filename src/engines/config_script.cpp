#include "engines/config_script.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "engines/shell_words.h"

namespace headroom::engines {

namespace {

using text::Json;

// What stands before the file; the word before the last one, or the last one by itself.
constexpr std::array<std::string_view, 3> kCommands{"llamafactory-cli train", "lmf train",
                                                    "axolotl train"};
constexpr std::array<std::string_view, 3> kPrograms{"train.py", "axolotl.cli.train",
                                                    "llamafactory.launcher"};
constexpr std::array<std::string_view, 3> kEndings{".yaml", ".yml", ".json"};

// Of launchers, by the names that the Trainer's arguments have for them (trainer.cpp).
constexpr std::array<std::string_view, 6> kLaunchers{
    "config-file", "num-processes", "num-machines", "nproc-per-node", "nnodes", "num-gpus"};
struct Variable {
  std::string_view name;
  std::string_view member;
};
constexpr std::array kVariables{Variable{"NPROC_PER_NODE", "nproc_per_node"},
                                Variable{"NNODES", "nnodes"}};

bool is_file(std::string_view word) {
  return std::ranges::any_of(kEndings, [&](std::string_view end) { return word.ends_with(end); });
}

bool is_start(const std::vector<ShellWord>& words, size_t at) {
  const std::string& last = words[at].text;
  if (std::ranges::any_of(kPrograms, [&](std::string_view end) { return last.ends_with(end); })) {
    return true;
  }
  if (at == 0) return false;
  const std::string both = words[at - 1].text + " " + last;
  return std::ranges::any_of(kCommands, [&](std::string_view end) { return both.ends_with(end); });
}

// Where the file's name is among the words, or a name that stands for it.
std::optional<size_t> place_of_file(ShellWords& words) {
  const std::vector<ShellWord> all = words.words();
  for (size_t i = 1; i < all.size(); ++i) {
    if (is_start(all, i - 1) && is_file(words.resolved(all[i].text).value_or(""))) return i;
  }
  return std::nullopt;
}

// --name value, or a member of a member: name.inner=value.
bool changes_what_is_not_read(std::string_view word) {
  const size_t sign = word.find('=');
  return word.starts_with("--") || (sign != std::string_view::npos && word.find('.') < sign);
}

}  // namespace

bool is_config_script(std::string_view content) {
  const bool may_be = std::ranges::any_of(kCommands,
                                          [&](std::string_view words) {
                                            return content.find(words) != std::string_view::npos;
                                          }) ||
                      std::ranges::any_of(kPrograms, [&](std::string_view words) {
                        return content.find(words) != std::string_view::npos;
                      });
  if (!may_be) return false;
  auto words = ShellWords::read(content, "");
  return words && place_of_file(*words).has_value();
}

Result<Json> arguments_of_config_script(std::string_view content, const std::string& file,
                                        const ReadNamed& read_named) {
  HEADROOM_ASSIGN(ShellWords words, ShellWords::read(content, file));
  const std::vector<ShellWord> all = words.words();
  const size_t at = *place_of_file(words);
  HEADROOM_ASSIGN(Json root, read_named(words.resolved(all[at].text).value_or("")));
  if (!root.is_object()) {
    return Error{ErrorCode::bad_input, "names a file that is no mapping", file, ""};
  }
  // LLaMA-Factory's way to change a member: cutoff_len=4096 (hparams/parser.py, read_args).
  size_t next = at + 1;
  for (; next < all.size(); ++next) {
    const std::string& word = all[next].text;
    const size_t sign = word.find('=');
    if (sign == std::string::npos || sign == 0 || changes_what_is_not_read(word)) break;
    root.set(word.substr(0, sign), words.resolved(word.substr(sign + 1)).value_or(""));
  }
  if (next < all.size() && changes_what_is_not_read(all[next].text)) {
    return Error{ErrorCode::bad_input,
                 "changes what its file says: '" + all[next].text.substr(0, 60) + "'", file,
                 "write it into the file, or leave it out"};
  }
  for (const std::string_view name : kLaunchers) {
    const auto written = words.written(name);
    if (!written) continue;
    std::string member(name);
    std::ranges::replace(member, '-', '_');
    root.set(member, words.resolved(*written).value_or(""));
  }
  for (const Variable& variable : kVariables) {
    const std::string name = "$" + std::string(variable.name);
    const auto value = words.resolved(name);
    if (value && *value != name) root.set(variable.member, *value);
  }
  // LLaMA-Factory starts a process on each GPU that it sees.
  const std::string seen = "$CUDA_VISIBLE_DEVICES";
  const auto devices = words.resolved(seen);
  if (devices && *devices != seen && !devices->empty() && root.find("nproc_per_node") == nullptr) {
    root.set("nproc_per_node", 1 + std::ranges::count(*devices, ','));
  }
  return root;
}

}  // namespace headroom::engines
