// Rules of operators: any bytes give rules or an Error with its place, and rules sort any name.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "ops/rules.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headroom;
  static const ops::OperatorRules base = *ops::OperatorRules::load("");
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto json = text::parse_json(bytes, "fuzz");
  if (!json) return 0;
  const auto rules = ops::OperatorRules::read(text::JsonView(*json, "fuzz"), &base);
  if (!rules) {
    HEADROOM_CHECK(!rules.error().where.empty(), "an error without a place");
    return 0;
  }
  formats::Names names;
  const uint32_t text = names.intern(bytes.substr(0, 200));
  const uint32_t known = names.intern("aten::mm");
  ops::Classifier classifier(*rules, names);
  HEADROOM_CHECK(classifier.classify({text, known}, text) < rules->groups().size(), "no group");
  HEADROOM_CHECK(classifier.by_kernel(known) < rules->groups().size(), "no group");
  static_cast<void>(classifier.paper_group_of(text));
  return 0;
}
