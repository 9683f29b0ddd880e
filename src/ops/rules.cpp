#include "ops/rules.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/check.h"
#include "ops/kernel_name.h"
#include "text/ascii.h"

namespace headroom::embedded {
extern const std::string_view kOperatorRulesJson;
}  // namespace headroom::embedded

namespace headroom::ops {
namespace {

constexpr size_t kMostGroups = 200;
constexpr size_t kMostRules = 1000;
constexpr size_t kMostPatterns = 10'000;  // of one rule
constexpr size_t kLongestPattern = 500;
constexpr size_t kLongestName = 4096;  // of a name as much is matched
constexpr size_t kShownKey = 80;       // of a key in an error
constexpr const char* kSchema = "headroom.operator_rules/1";
constexpr const char* kRulesPage = "docs/formats/operator_rules.md has the form";
constexpr int kNotAsked = -2;
constexpr int kNoMatch = -1;

// Whether `piece` stands at `at`; ? is any character.
bool stands_at(std::string_view text, size_t at, std::string_view piece) {
  if (at + piece.size() > text.size()) return false;
  for (size_t i = 0; i < piece.size(); ++i) {
    if (piece[i] != '?' && piece[i] != text[at + i]) return false;
  }
  return true;
}

size_t find_piece(std::string_view text, size_t from, std::string_view piece) {
  if (piece.find('?') == std::string_view::npos) return text.find(piece, from);
  for (size_t at = from; at + piece.size() <= text.size(); ++at) {
    if (stands_at(text, at, piece)) return at;
  }
  return std::string_view::npos;
}

// A mistyped key would leave its rules out without a word. "about" is a remark, anywhere.
Result<void> check_keys(const text::JsonView& view, std::span<const std::string_view> known) {
  if (!view.json().is_object()) return {};  // whoever reads it says so
  for (const auto& [key, value] : view.json().members()) {
    if (key == "about" || std::find(known.begin(), known.end(), key) != known.end()) continue;
    std::string possible;
    for (const std::string_view one : known) possible += std::string(one) + ", ";
    return view.error_at(key, "there is no key '" + key.substr(0, kShownKey) + "' here",
                         "possible are " + possible + "about; " + kRulesPage);
  }
  return {};
}

constexpr std::string_view kFileKeys[] = {"schema",      "groups",  "always",       "subtrees",
                                          "operators",   "kernels", "words",        "host",
                                          "transparent", "loops",   "nongemm_bench"};
constexpr std::string_view kLoopKeys[] = {"arithmetic", "reductions", "views"};  // as LoopPart
constexpr std::string_view kGroupKeys[] = {"name", "title"};
constexpr std::string_view kRuleKeys[] = {"group", "names"};
constexpr std::string_view kSubtreeKeys[] = {"group", "names", "except"};
constexpr std::string_view kPaperKeys[] = {"source", "groups"};

Result<void> check_schema(const text::JsonView& root) {
  const std::string wanted = std::string("expected \"schema\": \"") + kSchema + "\"";
  if (root.json().is_object() && !root.has("schema")) {
    return root.error_at("schema", "missing; " + wanted, kRulesPage);
  }
  HEADROOM_ASSIGN(const std::string schema, root.get_string("schema"));
  if (schema != kSchema) {
    return root.error_at("schema", "found \"" + schema.substr(0, kShownKey) + "\", " + wanted,
                         kRulesPage);
  }
  return {};
}

Result<std::vector<std::string>> read_names(const text::JsonView& view,
                                            std::string_view key = "names") {
  std::vector<std::string> names;
  HEADROOM_ASSIGN(const auto items, view.get_array(key, kMostPatterns));
  for (const text::JsonView& item : items) {
    if (!item.json().is_string() || item.json().as_string().size() > kLongestPattern) {
      return item.error("expected a name of at most 500 characters");
    }
    names.push_back(text::lower(item.json().as_string()));
  }
  return names;
}

Result<std::vector<NamePattern>> read_patterns(const text::JsonView& view, std::string_view key) {
  HEADROOM_ASSIGN(const auto names, read_names(view, key));
  return std::vector<NamePattern>(names.begin(), names.end());
}

}  // namespace

NamePattern::NamePattern(std::string_view pattern) {
  std::string_view rest = pattern;
  for (;;) {
    const size_t star = rest.find('*');
    pieces_.push_back(text::lower(rest.substr(0, star)));
    if (star == std::string_view::npos) return;
    rest.remove_prefix(star + 1);
  }
}

bool NamePattern::matches(std::string_view text) const {
  const std::string& head = pieces_.front();
  const std::string& tail = pieces_.back();
  if (pieces_.size() == 1) return text.size() == head.size() && stands_at(text, 0, head);
  if (!stands_at(text, 0, head) || text.size() < head.size() + tail.size()) return false;
  size_t at = head.size();
  for (size_t i = 1; i + 1 < pieces_.size(); ++i) {
    at = find_piece(text, at, pieces_[i]);
    if (at == std::string_view::npos) return false;
    at += pieces_[i].size();
  }
  return at + tail.size() <= text.size() && stands_at(text, text.size() - tail.size(), tail);
}

Result<OperatorRules> OperatorRules::load(const std::string& file) {
  HEADROOM_ASSIGN(const text::Json built_in,
                  text::parse_json(embedded::kOperatorRulesJson, "built-in operator_rules.json"));
  HEADROOM_ASSIGN(OperatorRules rules,
                  read(text::JsonView(built_in, "built-in operator_rules.json"), nullptr));
  if (file.empty()) return rules;
  HEADROOM_ASSIGN(const text::Json json, text::read_json_file(file));
  return read(text::JsonView(json, file), &rules);
}

Result<OperatorRules> OperatorRules::read(const text::JsonView& root, const OperatorRules* base) {
  OperatorRules rules;
  HEADROOM_TRY(check_schema(root));
  HEADROOM_TRY(check_keys(root, kFileKeys));
  if (base != nullptr) rules.groups_ = base->groups_;
  HEADROOM_TRY(rules.read_groups(root));
  HEADROOM_ASSIGN(rules.always_, rules.read_rules(root, "always"));
  HEADROOM_ASSIGN(rules.subtrees_, rules.read_rules(root, "subtrees"));
  HEADROOM_ASSIGN(rules.operators_, rules.read_rules(root, "operators"));
  HEADROOM_ASSIGN(rules.kernels_, rules.read_rules(root, "kernels"));
  HEADROOM_ASSIGN(rules.words_, rules.read_rules(root, "words"));
  HEADROOM_ASSIGN(rules.host_, rules.read_rules(root, "host"));
  if (root.has("transparent")) {
    HEADROOM_ASSIGN(rules.transparent_, read_patterns(root, "transparent"));
  }
  HEADROOM_TRY(rules.read_loops(root));
  HEADROOM_TRY(rules.read_paper(root));
  if (base == nullptr) return rules;
  const auto append = [](auto& to, const auto& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  append(rules.always_, base->always_);
  append(rules.subtrees_, base->subtrees_);
  append(rules.operators_, base->operators_);
  rules.file_kernels_ = std::exchange(rules.kernels_, base->kernels_);
  append(rules.words_, base->words_);
  append(rules.host_, base->host_);
  append(rules.transparent_, base->transparent_);
  for (size_t i = 0; i < kLoopParts; ++i) append(rules.loops_[i], base->loops_[i]);
  if (!root.has("nongemm_bench")) {
    rules.paper_groups_ = base->paper_groups_;
    rules.paper_names_ = base->paper_names_;
  }
  return rules;
}

// Adds to what is there, before "unclassified".
Result<void> OperatorRules::read_groups(const text::JsonView& root) {
  if (!groups_.empty()) groups_.pop_back();
  if (root.has("groups")) {
    HEADROOM_ASSIGN(const auto items, root.get_array("groups", kMostGroups));
    for (const text::JsonView& item : items) {
      OperatorGroup group;
      HEADROOM_TRY(check_keys(item, kGroupKeys));
      HEADROOM_ASSIGN(group.name, item.get_string("name"));
      HEADROOM_ASSIGN(group.title, item.get_string("title"));
      const bool is_known =
          std::any_of(groups_.begin(), groups_.end(),
                      [&](const OperatorGroup& known) { return known.name == group.name; });
      if (is_known || group.name == "unclassified" || group.name == "idle") {
        return item.error_at("name",
                             "the group '" + group.name.substr(0, 80) + "' is there already",
                             "name groups of your own alone: a file adds to the built-in rules");
      }
      groups_.push_back(std::move(group));
    }
  }
  if (groups_.size() > kMostGroups) return root.error_at("groups", "more than 200 groups");
  groups_.push_back({"unclassified", "unclassified"});
  return {};
}

Result<std::vector<OperatorRules::Rule>> OperatorRules::read_rules(const text::JsonView& root,
                                                                   std::string_view key) const {
  std::vector<Rule> rules;
  if (!root.has(key)) return rules;
  HEADROOM_ASSIGN(const auto items, root.get_array(key, kMostRules));
  const bool is_subtrees = key == "subtrees";  // only there an exception has a meaning
  for (const text::JsonView& item : items) {
    HEADROOM_TRY(is_subtrees ? check_keys(item, kSubtreeKeys) : check_keys(item, kRuleKeys));
    HEADROOM_ASSIGN(const std::string name, item.get_string("group"));
    Rule rule;
    HEADROOM_ASSIGN(rule.group, find_group(item, name));
    if (item.has("except")) {
      HEADROOM_ASSIGN(const auto excepted, item.get_array("except", kMostGroups));
      for (const text::JsonView& other : excepted) {
        if (!other.json().is_string()) return other.error("expected the name of a group");
        HEADROOM_ASSIGN(const GroupIndex group, find_group(other, other.json().as_string()));
        rule.except.push_back(group);
      }
    }
    HEADROOM_ASSIGN(const std::vector<std::string> names, read_names(item));
    for (const std::string& pattern : names) rule.patterns.emplace_back(pattern);
    rules.push_back(std::move(rule));
  }
  return rules;
}

// "unclassified" is behind the others and moves when a file adds some: no rule may name it.
Result<GroupIndex> OperatorRules::find_group(const text::JsonView& view,
                                             const std::string& name) const {
  for (size_t i = 0; i + 1 < groups_.size(); ++i) {
    if (groups_[i].name == name) return static_cast<GroupIndex>(i);
  }
  return view.error("there is no group '" + name.substr(0, 80) + "'",
                    "add it to \"groups\" with a title");
}

Result<void> OperatorRules::read_loops(const text::JsonView& root) {
  if (!root.has("loops")) return {};
  HEADROOM_ASSIGN(const text::JsonView loops, root.get_object("loops"));
  HEADROOM_TRY(check_keys(loops, kLoopKeys));
  for (size_t i = 0; i < kLoopParts; ++i) {
    if (!loops.has(kLoopKeys[i])) continue;
    HEADROOM_ASSIGN(loops_[i], read_patterns(loops, kLoopKeys[i]));
  }
  return {};
}

Result<void> OperatorRules::read_paper(const text::JsonView& root) {
  if (!root.has("nongemm_bench")) return {};
  HEADROOM_ASSIGN(const text::JsonView paper, root.get_object("nongemm_bench"));
  HEADROOM_TRY(check_keys(paper, kPaperKeys));
  HEADROOM_ASSIGN(const auto items, paper.get_array("groups", kMostGroups));
  for (const text::JsonView& item : items) {
    HEADROOM_TRY(check_keys(item, kRuleKeys));
    HEADROOM_ASSIGN(std::string name, item.get_string("group"));
    HEADROOM_ASSIGN(std::vector<std::string> names, read_names(item));
    paper_groups_.push_back(std::move(name));
    paper_names_.push_back(std::move(names));
  }
  paper_groups_.emplace_back("missed");
  return {};
}

GroupIndex OperatorRules::group(std::string_view name) const {
  const auto found = std::find_if(groups_.begin(), groups_.end(),
                                  [&](const OperatorGroup& known) { return known.name == name; });
  HEADROOM_CHECK(found != groups_.end(), "a built-in group is missing");
  return static_cast<GroupIndex>(found - groups_.begin());
}

bool OperatorRules::is_any_of(const std::vector<NamePattern>& patterns, std::string_view name) {
  const std::string lowered = text::lower(name.substr(0, kLongestName));
  return std::ranges::any_of(patterns,
                             [&](const NamePattern& pattern) { return pattern.matches(lowered); });
}

std::optional<GroupIndex> OperatorRules::first_match(const std::vector<Rule>& rules,
                                                     std::string_view name,
                                                     std::optional<GroupIndex> own) {
  const std::string lowered = text::lower(name.substr(0, kLongestName));
  for (const Rule& rule : rules) {
    if (own && std::find(rule.except.begin(), rule.except.end(), *own) != rule.except.end()) {
      continue;
    }
    for (const NamePattern& pattern : rule.patterns) {
      if (pattern.matches(lowered)) return rule.group;
    }
  }
  return std::nullopt;
}

std::optional<GroupIndex> OperatorRules::always(std::string_view name) const {
  return first_match(always_, name);
}
std::optional<GroupIndex> OperatorRules::of_subtree(std::string_view name,
                                                    std::optional<GroupIndex> own) const {
  return first_match(subtrees_, name, own);
}
std::optional<GroupIndex> OperatorRules::of_operator(std::string_view name) const {
  return first_match(operators_, name);
}
std::optional<GroupIndex> OperatorRules::of_host(std::string_view name) const {
  return first_match(host_, name);
}
std::optional<GroupIndex> OperatorRules::of_kernel(std::string_view name) const {
  if (const auto group = first_match(file_kernels_, name)) return group;
  const std::string_view own = own_part(name);
  if (const auto group = first_match(kernels_, own)) return group;
  return own.size() == name.size() ? std::nullopt : first_match(kernels_, name);
}
std::optional<GroupIndex> OperatorRules::of_word(std::string_view name) const {
  return first_match(words_, own_part(name));
}

bool OperatorRules::is_transparent(std::string_view name) const {
  return is_any_of(transparent_, name);
}

bool OperatorRules::is_loop_part(LoopPart part, std::string_view name) const {
  return is_any_of(loops_[static_cast<size_t>(part)], name);
}

size_t OperatorRules::paper_group_of(std::string_view name) const {
  const size_t colons = name.rfind("::");
  const std::string_view last = colons == std::string_view::npos ? name : name.substr(colons + 2);
  const std::string bare = text::lower(last.substr(0, kLongestName));
  for (size_t i = 0; i < paper_names_.size(); ++i) {
    const auto& names = paper_names_[i];
    if (std::find(names.begin(), names.end(), bare) != names.end()) return i;
  }
  return paper_names_.size();
}

Classifier::Classifier(const OperatorRules& rules, const formats::Names& names)
    : rules_(rules),
      names_(names),
      always_(names.size(), kNotAsked),
      host_(names.size(), kNotAsked),
      operator_(names.size(), kNotAsked),
      kernel_(names.size(), kNotAsked),
      word_(names.size(), kNotAsked),
      paper_(names.size(), kNotAsked) {}

template <typename Ask>
int Classifier::remembered(Memo& memo, uint32_t name, Ask ask) {
  int16_t& known = memo[name];
  if (known == kNotAsked) {
    const std::optional<GroupIndex> group = ask(names_.at(name));
    known = group ? static_cast<int16_t>(*group) : static_cast<int16_t>(kNoMatch);
  }
  return known;
}

int Classifier::subtree(uint32_t name, int own_group) {
  const uint64_t key = uint64_t{name} << 16 | static_cast<uint16_t>(own_group);
  const auto [known, is_new] = subtree_.try_emplace(key, static_cast<int16_t>(kNoMatch));
  if (is_new) {
    const auto own =
        own_group >= 0 ? std::optional(static_cast<GroupIndex>(own_group)) : std::nullopt;
    if (const auto group = rules_.of_subtree(names_.at(name), own)) known->second = *group;
  }
  return known->second;
}

int Classifier::host(uint32_t name) {
  return remembered(host_, name, [&](std::string_view text) { return rules_.of_host(text); });
}

int Classifier::always(uint32_t name) {
  return remembered(always_, name, [&](std::string_view text) { return rules_.always(text); });
}

// By the operators around, the innermost first.
int Classifier::around(const std::vector<uint32_t>& chain) {
  if (chain.empty()) return kNoMatch;
  const int innermost = own(chain.front());
  for (const uint32_t operation : chain) {
    if (const int group = subtree(operation, innermost); group >= 0) return group;
  }
  return kNoMatch;
}

int Classifier::own(uint32_t name) {
  return remembered(operator_, name, [&](std::string_view text) {
    return rules_.is_transparent(text) ? std::optional<GroupIndex>() : rules_.of_operator(text);
  });
}

int Classifier::kernel(uint32_t name) {
  return remembered(kernel_, name, [&](std::string_view text) { return rules_.of_kernel(text); });
}

int Classifier::word(uint32_t name) {
  return remembered(word_, name, [&](std::string_view text) { return rules_.of_word(text); });
}

GroupIndex Classifier::by_kernel(uint32_t name) {
  int group = always(name);
  if (group < 0) group = kernel(name);
  if (group < 0) group = word(name);
  return group >= 0 ? static_cast<GroupIndex>(group) : rules_.unclassified();
}

GroupIndex Classifier::classify(const std::vector<uint32_t>& chain, uint32_t name) {
  if (const int group = always(name); group >= 0) return static_cast<GroupIndex>(group);
  if (const int group = around(chain); group >= 0) return static_cast<GroupIndex>(group);
  if (!chain.empty()) {
    if (const int group = own(chain.front()); group >= 0) return static_cast<GroupIndex>(group);
  }
  if (const int group = kernel(name); group >= 0) return static_cast<GroupIndex>(group);
  if (const int group = by_operators(chain); group >= 0) return static_cast<GroupIndex>(group);
  const int group = word(name);
  return group >= 0 ? static_cast<GroupIndex>(group) : rules_.unclassified();
}

int Classifier::by_operators(const std::vector<uint32_t>& chain) {
  if (const int group = around(chain); group >= 0) return group;
  for (const uint32_t operation : chain) {
    if (const int group = own(operation); group >= 0) return group;
  }
  return kNoMatch;
}

GroupIndex Classifier::on_host(const std::vector<uint32_t>& chain) {
  const int bookkeeping = host(chain.front());
  const int group = bookkeeping >= 0 ? bookkeeping : by_operators(chain);
  return group >= 0 ? static_cast<GroupIndex>(group) : rules_.unclassified();
}

bool Classifier::is_wrapper(GroupIndex group, uint32_t name) {
  return group == rules_.unclassified() || host(name) >= 0;
}

size_t Classifier::paper_group_of(uint32_t name) {
  int16_t& known = paper_[name];
  if (known == kNotAsked) known = static_cast<int16_t>(rules_.paper_group_of(names_.at(name)));
  return static_cast<size_t>(known);
}

}  // namespace headroom::ops
