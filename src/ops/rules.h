// OperatorRules: which group a kernel belongs to, by rules that are data
// (data/operator_rules.json).
//
// A rule is a list of patterns of names and a group; the first that matches wins. --rules FILE adds
// lists before the built-in ones, and groups. Names that a trace repeats are matched once each: a
// Classifier remembers. Reading costs 1 ms; matching a name about 10 us, once. Rules are immutable
// and may be shared; a Classifier belongs to one thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "formats/trace.h"
#include "text/json.h"

namespace headroom::ops {

// An index into OperatorRules::groups().
using GroupIndex = uint8_t;

struct OperatorGroup {
  std::string name;   // "gemm"
  std::string title;  // "GEMM"
};

// What an operator is to a chain of loops on a CPU (host_fusion.h).
enum class LoopPart : uint8_t {
  arithmetic,  // takes as long as its traffic
  reduction,   // makes one of a row
  view,        // makes nothing
};
constexpr size_t kLoopParts = 3;

// A name pattern: * is anything, ? one character; without regard to case.
class NamePattern {
 public:
  explicit NamePattern(std::string_view pattern);
  // REQUIRES: `lower` is in lower case.
  [[nodiscard]] bool matches(std::string_view lower) const;

 private:
  std::vector<std::string> pieces_;  // between the stars
};

class OperatorRules {
 public:
  // The built-in rules, and before them those of `file` where it is not "".
  static Result<OperatorRules> load(const std::string& file);
  // Rules from JSON; `base` comes behind them where it is given.
  static Result<OperatorRules> read(const text::JsonView& root, const OperatorRules* base);

  // The last one is "unclassified".
  [[nodiscard]] const std::vector<OperatorGroup>& groups() const { return groups_; }
  [[nodiscard]] GroupIndex unclassified() const {
    return static_cast<GroupIndex>(groups_.size() - 1);
  }
  // The group of that name. REQUIRES: it is one of the built-in groups.
  [[nodiscard]] GroupIndex group(std::string_view name) const;
  // NonGEMM Bench's groups; the last one is "missed".
  [[nodiscard]] const std::vector<std::string>& paper_groups() const { return paper_groups_; }

  // By the name of a kernel, whoever launched it.
  [[nodiscard]] std::optional<GroupIndex> always(std::string_view name) const;
  // By one of the operators around it; `own` is the group of the innermost one, if it has any.
  [[nodiscard]] std::optional<GroupIndex> of_subtree(std::string_view name,
                                                     std::optional<GroupIndex> own) const;
  [[nodiscard]] std::optional<GroupIndex> of_operator(std::string_view name) const;
  // By the name of a kernel: a file's rules by the whole of it, then the built-in ones by the part
  // that is its own (kernel_name.h), then by the whole.
  [[nodiscard]] std::optional<GroupIndex> of_kernel(std::string_view name) const;
  // By a word in a kernel's name, where nothing else says what it is.
  [[nodiscard]] std::optional<GroupIndex> of_word(std::string_view name) const;
  // Of an operator that puts nothing on a device: what its own time on the host is.
  [[nodiscard]] std::optional<GroupIndex> of_host(std::string_view name) const;
  [[nodiscard]] bool is_transparent(std::string_view name) const;
  // An operator may be several.
  [[nodiscard]] bool is_loop_part(LoopPart part, std::string_view name) const;
  // The group that NonGEMM Bench's code puts an operator into; an index into paper_groups().
  [[nodiscard]] size_t paper_group_of(std::string_view name) const;

 private:
  struct Rule {
    GroupIndex group;
    std::vector<NamePattern> patterns;
    std::vector<GroupIndex> except;  // of the innermost operator
  };
  static bool is_any_of(const std::vector<NamePattern>& patterns, std::string_view name);
  static std::optional<GroupIndex> first_match(const std::vector<Rule>& rules,
                                               std::string_view name,
                                               std::optional<GroupIndex> own = std::nullopt);
  [[nodiscard]] Result<GroupIndex> find_group(const text::JsonView& view,
                                              const std::string& name) const;
  Result<void> read_groups(const text::JsonView& root);
  Result<std::vector<Rule>> read_rules(const text::JsonView& root, std::string_view key) const;
  Result<void> read_loops(const text::JsonView& root);
  Result<void> read_paper(const text::JsonView& root);

  std::vector<OperatorGroup> groups_;
  std::vector<Rule> always_, subtrees_, operators_, kernels_, words_, host_;
  std::vector<Rule> file_kernels_;  // of --rules
  std::vector<NamePattern> transparent_;
  std::array<std::vector<NamePattern>, kLoopParts> loops_;
  std::vector<std::string> paper_groups_;
  std::vector<std::vector<std::string>> paper_names_;  // of each but the last
};

// What the rules say of one trace's names, each name asked once.
class Classifier {
 public:
  // Both must outlive it.
  Classifier(const OperatorRules& rules, const formats::Names& names);

  // `chain`: the operators and annotations around the launch, the innermost first, as name ids.
  GroupIndex classify(const std::vector<uint32_t>& chain, uint32_t kernel);
  GroupIndex by_kernel(uint32_t kernel);
  // Of an operator's own time on the host; `chain` begins with itself.
  GroupIndex on_host(const std::vector<uint32_t>& chain);
  // Whether a name says nothing of the kernels below it: no rule, or one for the host alone.
  bool is_wrapper(GroupIndex group, uint32_t name);
  size_t paper_group_of(uint32_t name);
  [[nodiscard]] const OperatorRules& rules() const { return rules_; }

 private:
  using Memo = std::vector<int16_t>;
  template <typename Ask>
  int remembered(Memo& memo, uint32_t name, Ask ask);
  int subtree(uint32_t name, int own_group);
  int own(uint32_t name);
  int kernel(uint32_t name);
  int word(uint32_t name);
  int always(uint32_t name);
  int host(uint32_t name);
  int by_operators(const std::vector<uint32_t>& chain);
  int around(const std::vector<uint32_t>& chain);

  const OperatorRules& rules_;
  const formats::Names& names_;
  Memo always_, host_, operator_, kernel_, word_, paper_;
  std::unordered_map<uint64_t, int16_t> subtree_;  // by name and own group
};

}  // namespace headroom::ops
