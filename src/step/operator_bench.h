// Peaks of single operators as Liger-Kernel's benchmark scripts measure them: the operator's
// forward and backward run over and over on the same inputs, with the gradients of the iteration
// before still there, and torch's max_memory_allocated is read for one iteration.
//
// This replays such a script on symbolic tensors and through the caching allocator, so that the
// fused kernels, the plain ones and their scratch can be held against measurements one by one.
// Source: benchmark/scripts/*.py of Liger-Kernel at b5672a1 (0.2.1) and v0.4.2. Pure, any thread,
// well under a millisecond.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "operator/eager.h"

namespace headroom::step {

enum class BenchKernel : uint8_t {
  cross_entropy,
  embedding,
  fused_linear_cross_entropy,
  geglu,
  layer_norm,
  rms_norm,
  rope,
  swiglu,
};
enum class BenchScope : uint8_t { full, forward, backward };

struct OperatorBench {
  BenchKernel kernel{};
  bool is_liger = false;  // else the module of torch or transformers
  BenchScope scope = BenchScope::full;
  op::Version liger{0, 2};
  op::DType dtype = op::DType::f32;
  int64_t batch = 1;
  int64_t sequence = 1;      // batch * sequence rows
  int64_t width = 1;         // hidden size
  int64_t intermediate = 1;  // of the gated layers
  int64_t classes = 1;       // vocabulary
  int64_t heads = 1;         // of rope
  int64_t key_heads = 1;
};

// As the rows of a table of measurements name it: kernel "rope", provider "liger" or "huggingface",
// scope "op full", setting `H=512 {"dtype": "torch.bfloat16", "seq_len": 2048, ...}`, and the
// release in a text like "Liger-Kernel 0.4.2 benchmark". The error names the field.
struct OperatorRow {
  std::string_view kernel;
  std::string_view provider;
  std::string_view scope;
  std::string_view setting;
  std::string_view framework;
};
[[nodiscard]] Result<OperatorBench> parse_operator_bench(const OperatorRow& row);

// Why a row's measurement is not of the operator alone, or nothing. The script of `embedding` times
// torch.compile in the same process first, which leaves tensors behind: the same 12.8 GB (14.4 GB
// in the second configuration) in every row, which no setting tells. Differences between such rows
// are predicted; their level is not.
[[nodiscard]] std::string_view operator_row_caveat(const OperatorRow& row);

// An A100 with the PyTorch of the time of the published measurements (2.4).
[[nodiscard]] op::Environment operator_bench_environment();

// The allocated peak of a late iteration, in bytes.
[[nodiscard]] Result<int64_t> operator_peak(const OperatorBench& bench,
                                            const op::Environment& environment);

}  // namespace headroom::step
