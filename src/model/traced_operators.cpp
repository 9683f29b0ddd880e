#include "model/traced_operators.h"

#include <algorithm>
#include <array>

namespace headroom::model {

namespace {

using op::OpKind;

struct Name {
  std::string_view aten;
  OpKind kind;
};

// Where PyTorch's name is not that of the kind. Views of every kind launch nothing, so one stands
// for all of them.
constexpr std::array kNames = {
    Name{"_unsafe_view", OpKind::view},
    Name{"alias", OpKind::view},
    Name{"as_strided", OpKind::view},
    Name{"lift_fresh", OpKind::view},
    Name{"t", OpKind::transpose},
    Name{"unbind", OpKind::split},
    Name{"split_with_sizes", OpKind::split},
    Name{"_to_copy", OpKind::cast},
    Name{"copy", OpKind::copy},
    Name{"_softmax", OpKind::softmax},
    Name{"_log_softmax", OpKind::log_softmax},
    Name{"native_layer_norm", OpKind::layer_norm},
    Name{"_fused_rms_norm", OpKind::rms_norm},
    Name{"native_dropout", OpKind::dropout},
    Name{"nll_loss_forward", OpKind::nll_loss},
    Name{"_scaled_dot_product_flash_attention", OpKind::sdpa},
    Name{"_scaled_dot_product_efficient_attention", OpKind::sdpa},
    Name{"_scaled_dot_product_cudnn_attention", OpKind::sdpa},
    Name{"constant_pad_nd", OpKind::pad},
    Name{"tril", OpKind::triangle},
    Name{"triu", OpKind::triangle},
    Name{"empty", OpKind::fill},
    Name{"empty_like", OpKind::fill},
    Name{"zeros", OpKind::fill},
    Name{"zeros_like", OpKind::fill},
    Name{"ones", OpKind::fill},
    Name{"ones_like", OpKind::fill},
    Name{"full", OpKind::fill},
    Name{"full_like", OpKind::fill},
    Name{"new_zeros", OpKind::fill},
    Name{"new_ones", OpKind::fill},
    Name{"new_full", OpKind::fill},
    Name{"scalar_tensor", OpKind::fill},
    Name{"zero", OpKind::fill},
    Name{"convolution", OpKind::convolution},
    Name{"eq", OpKind::compare},
    Name{"ne", OpKind::compare},
    Name{"lt", OpKind::compare},
    Name{"le", OpKind::compare},
    Name{"gt", OpKind::compare},
    Name{"ge", OpKind::compare},
    Name{"logical_not", OpKind::logical},
    Name{"bitwise_not", OpKind::logical},
    Name{"logical_and", OpKind::logical},
    Name{"bitwise_and", OpKind::logical},
    Name{"bitwise_or", OpKind::logical},
    Name{"all", OpKind::logical},
    Name{"any", OpKind::logical},
    Name{"isneginf", OpKind::logical},
    Name{"rsub", OpKind::sub},
    Name{"clamp_min", OpKind::clamp},
    Name{"clamp_max", OpKind::clamp},
    Name{"index_put", OpKind::index_put},
};

// "addmm" of "aten.addmm.default"; the underscore of an in-place operator goes.
std::string_view stem(std::string_view name) {
  if (!name.starts_with("aten.")) return {};
  name.remove_prefix(5);
  name = name.substr(0, name.find('.'));
  if (name.ends_with('_')) name.remove_suffix(1);
  return name;
}

OpKind kind_of(std::string_view word) {
  const auto found = std::ranges::find(kNames, word, &Name::aten);
  if (found != kNames.end()) return found->kind;
  // Kinds that are ours alone never come out of a trace.
  const bool is_ours = word == "opaque" || word == "fused_kernel" || word == "optimizer_update" ||
                       word.starts_with("liger_") || word.starts_with("fast_");
  if (is_ours) return OpKind::opaque;
  return op::parse_op_kind(word).value_or(OpKind::opaque);
}

}  // namespace

KnownOperator known_operator(std::string_view name) {
  const std::string_view word = stem(name);
  KnownOperator known;
  known.kind = kind_of(word);
  if (word == "mm" || word == "bmm") known.factor = "self";
  if (word == "addmm") known.factor = "mat1";
  if (word == "baddbmm") known.factor = "batch1";
  known.starts_loss = word == "_log_softmax" || word == "nll_loss_forward";
  return known;
}

}  // namespace headroom::model
