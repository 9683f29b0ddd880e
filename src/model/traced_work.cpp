#include "model/traced_work.h"

#include "model/traced_operators.h"

namespace headroom::model {

namespace {

using op::Dims;
using op::OpKind;
using text::Json;

// The sizes of the argument `name`; nullptr where it is no value.
const Dims* sizes_of(const Json& args, std::string_view name, const TracedValues& values) {
  const Json* argument = args.find(name);
  const Json* value =
      argument != nullptr && argument->is_object() ? argument->find("value") : nullptr;
  if (value == nullptr || !value->is_integer()) return nullptr;
  const int64_t id = value->as_int();
  if (id < 0 || id >= static_cast<int64_t>(values.size())) return nullptr;
  return &values[static_cast<ValueId>(id)].tensor.sizes;
}

bool is_true(const Json& args, std::string_view name) {
  const Json* argument = args.find(name);
  return argument != nullptr && argument->kind() == Json::Kind::boolean && argument->as_bool();
}

double count(const Dims& sizes) { return static_cast<double>(op::product(sizes)); }

// Each result is a sum over the factor's last dimension.
double product_work(const Dims* factor, const Dims& output) {
  if (factor == nullptr) return 0;
  return 2 * count(output) * (factor->empty() ? 1 : static_cast<double>(factor->back()));
}

// Each result, or of a transposed one each input, meets all weights of its group.
double convolution_work(const Json& args, const TracedValues& values, const Dims& output) {
  const Dims* input = sizes_of(args, "input", values);
  const Dims* weight = sizes_of(args, "weight", values);
  if (input == nullptr || weight == nullptr || weight->empty() || (*weight)[0] == 0) return 0;
  const double meets = count(*weight) / static_cast<double>((*weight)[0]);
  return 2 * meets * count(is_true(args, "transposed") ? *input : output);
}

// Scores over the width of keys, sums over that of values.
double attention_work(const Json& args, const TracedValues& values) {
  const Dims* query = sizes_of(args, "query", values);
  const Dims* key = sizes_of(args, "key", values);
  const Dims* value = sizes_of(args, "value", values);
  if (query == nullptr || key == nullptr || value == nullptr) return 0;
  constexpr size_t kDims = 4;  // batch, heads, tokens, width
  if (query->size() != kDims || key->size() != kDims || value->size() != kDims) return 0;
  const double pairs = static_cast<double>((*query)[0]) * static_cast<double>((*query)[1]) *
                       static_cast<double>((*query)[2]) * static_cast<double>((*key)[2]);
  const double width = static_cast<double>(query->back()) + static_cast<double>(value->back());
  return (is_true(args, "is_causal") ? 1 : 2) * pairs * width;
}

}  // namespace

double work_of(std::string_view name, const Json& args, const TracedValues& values,
               const Dims& output) {
  const KnownOperator known = known_operator(name);
  if (!known.factor.empty()) {
    return product_work(sizes_of(args, known.factor, values), output);
  }
  if (known.kind == OpKind::convolution) return convolution_work(args, values, output);
  if (known.kind == OpKind::sdpa) return attention_work(args, values);
  return 0;
}

}  // namespace headroom::model
