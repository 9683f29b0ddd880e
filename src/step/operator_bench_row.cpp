// Rows of measurements, as Liger-Kernel's tables write them, into OperatorBench.
#include <array>
#include <charconv>

#include "step/operator_bench.h"
#include "text/json.h"

namespace headroom::step {

namespace {

constexpr int64_t kSizeMax = int64_t{1} << 24;
// Elements of one tensor, and so every product of sizes below.
constexpr double kElementsMax = 1e14;

Error bad_row(std::string message, std::string where) {
  return {ErrorCode::bad_input, std::move(message), std::move(where), {}};
}

struct KernelName {
  std::string_view name;
  BenchKernel kernel;
};
constexpr auto kKernels = std::to_array<KernelName>({
    {"cross_entropy", BenchKernel::cross_entropy},
    {"embedding", BenchKernel::embedding},
    {"fused_linear_cross_entropy", BenchKernel::fused_linear_cross_entropy},
    {"geglu", BenchKernel::geglu},
    {"layer_norm", BenchKernel::layer_norm},
    {"rms_norm", BenchKernel::rms_norm},
    {"rope", BenchKernel::rope},
    {"swiglu", BenchKernel::swiglu},
});

Result<BenchKernel> kernel_of(std::string_view name) {
  for (const KernelName& entry : kKernels) {
    if (entry.name == name) return entry.kernel;
  }
  return bad_row("no such kernel: \"" + std::string(name) + "\"", "model");
}

Result<BenchScope> scope_of(std::string_view scope) {
  if (scope == "op full") return BenchScope::full;
  if (scope == "op forward") return BenchScope::forward;
  if (scope == "op backward") return BenchScope::backward;
  return bad_row("expected \"op full\", \"op forward\" or \"op backward\"", "scope");
}

// The first "a.b" in the text.
std::optional<op::Version> version_in(std::string_view text) {
  const size_t dot = text.find('.');
  const auto is_digit = [&](size_t i) {
    return i < text.size() && text[i] >= '0' && text[i] <= '9';
  };
  if (dot == std::string_view::npos || dot == 0 || !is_digit(dot - 1) || !is_digit(dot + 1)) {
    return std::nullopt;
  }
  op::Version version;
  std::from_chars(text.data() + dot - 1, text.data() + dot, version.major);
  std::from_chars(text.data() + dot + 1, text.data() + text.size(), version.minor);
  return version;
}

// Where a name's number belongs. The scripts do not agree on names: H is rms_norm's and rope's
// width and the loss's hidden size, N is layer_norm's width, M is a number of rows.
int64_t* field_of(OperatorBench& bench, std::string_view name) {
  if (name == "B" || name == "bsz") return &bench.batch;
  if (name == "T" || name == "seq_len" || name == "BT" || name == "M") return &bench.sequence;
  if (name == "H" || name == "hidden_size" || name == "D" || name == "N") return &bench.width;
  if (name == "V") return &bench.classes;
  if (name == "intermediate_size") return &bench.intermediate;
  if (name == "num_q_heads") return &bench.heads;
  if (name == "num_kv_heads") return &bench.key_heads;
  return nullptr;
}

// `H=512 {...}`: the swept size, then the others.
Result<void> read_setting(OperatorBench& bench, std::string_view setting) {
  const size_t brace = setting.find('{');
  const size_t equals = setting.find('=');
  if (brace == std::string_view::npos || equals >= brace) {
    return bad_row("expected NAME=NUMBER {\"name\": value, ...}", "notes");
  }
  int64_t* swept = field_of(bench, setting.substr(0, equals));
  if (!swept) return bad_row("an unknown size: " + std::string(setting.substr(0, equals)), "notes");
  const std::string_view number = setting.substr(equals + 1, brace - equals - 1);
  *swept = 0;
  std::from_chars(number.data(), number.data() + number.size(), *swept);
  HEADROOM_ASSIGN(const text::Json json, text::parse_json(setting.substr(brace), "notes"));
  HEADROOM_ASSIGN(const auto members, text::JsonView(json, "notes").get_members());
  for (const auto& [name, value] : members) {
    if (int64_t* field = field_of(bench, name)) {
      HEADROOM_ASSIGN(*field, value.to_int(1, kSizeMax));
    } else if (name == "dtype") {
      HEADROOM_ASSIGN(const std::string text, value.to_string());
      const auto dtype = op::parse_dtype(text);
      if (!dtype || !op::is_floating(*dtype)) return value.error("expected a floating dtype");
      bench.dtype = *dtype;
    }
  }
  return {};
}

Result<void> check_sizes(const OperatorBench& bench) {
  for (const int64_t size : {bench.batch, bench.sequence, bench.width, bench.intermediate,
                             bench.classes, bench.heads, bench.key_heads}) {
    if (size < 1 || size > kSizeMax) return bad_row("a size out of range", "notes");
  }
  const double rows = static_cast<double>(bench.batch) * static_cast<double>(bench.sequence);
  const double across = static_cast<double>(bench.width) + static_cast<double>(bench.intermediate) +
                        static_cast<double>(bench.classes);
  if (rows * across > kElementsMax) return bad_row("sizes too large together", "notes");
  if (bench.width % (2 * bench.heads) != 0 && bench.kernel == BenchKernel::rope) {
    return bad_row("the hidden size does not divide into heads of even size", "notes");
  }
  return {};
}

}  // namespace

std::string_view operator_row_caveat(const OperatorRow& row) {
  if (row.kernel != "embedding") return {};
  return "the measured process held tensors left by torch.compile, which the row does not tell";
}

Result<OperatorBench> parse_operator_bench(const OperatorRow& row) {
  OperatorBench bench;
  HEADROOM_ASSIGN(bench.kernel, kernel_of(row.kernel));
  HEADROOM_ASSIGN(bench.scope, scope_of(row.scope));
  if (row.provider != "liger" && row.provider != "huggingface") {
    return bad_row("expected \"liger\" or \"huggingface\"", "method");
  }
  bench.is_liger = row.provider == "liger";
  const bool is_gated = bench.kernel == BenchKernel::geglu || bench.kernel == BenchKernel::swiglu;
  if (bench.scope != BenchScope::full && !is_gated) {
    return bad_row("only gated layers are measured in parts", "scope");
  }
  if (const auto version = version_in(row.framework)) bench.liger = *version;
  HEADROOM_TRY(read_setting(bench, row.setting));
  HEADROOM_TRY(check_sizes(bench));
  return bench;
}

}  // namespace headroom::step
