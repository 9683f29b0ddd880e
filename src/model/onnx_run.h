// What the operators of an ONNX graph do, on concrete sizes: FLOPs, bytes, and the shapes of
// products, counted as the step model counts them (operator/sink.h): a multiply-add is two
// operations, each operand is read once and each result written once.
//
// Open dimensions take the setting's sizes (onnx_dimensions.h). What follows from sizes alone
// (Shape, Gather, Concat into a Reshape) is computed here and launches nothing; what only looks at
// memory in another shape (Reshape, Squeeze) neither, nor what is made of weights and constants
// alone, which is made once. An operator that is not known takes the sizes that the file itself
// declares for its results, and is named in `unknown`; without those it is an Error, as are results
// whose size depends on data. Pure; linear in the graph; any thread.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/onnx_file.h"

namespace headroom::model {

struct OnnxSetting {
  int64_t batch = 1;
  int64_t sequence = 512;
  std::map<std::string, int64_t> dimensions = {};  // by name, before the two above
};

// A dimension that the file leaves open, and what it was taken for.
struct OnnxOpenSize {
  enum class Role : uint8_t { batch, sequence, past, sum, other };
  std::string name;
  int64_t size = 0;
  Role role = Role::other;
  bool is_given = false;  // by its name, OnnxSetting::dimensions
};

enum class OnnxWorkKind : uint8_t { rows, product, attention };

struct OnnxWork {
  std::string_view operation;  // of the model, which must outlive this
  OnnxWorkKind kind = OnnxWorkKind::rows;
  double flops = 0;
  double bytes_read = 0;
  double bytes_written = 0;
  op::DType type = op::DType::f32;  // that a product is computed in, else of the result
  bool has_weight = false;          // a product with one that the file holds
  // Of a product: so many of m x k by k x n. Of rows: m of n elements.
  int64_t count = 1, m = 1, n = 1, k = 1;
  // Of attention: count sequences with so many heads, m queries, k keys, n elements a head.
  int64_t heads = 1, kv_heads = 1;
  bool is_causal = false;
};

struct OnnxRun {
  std::vector<OnnxWork> work;
  std::vector<OnnxOpenSize> open;    // each name once
  std::vector<std::string> unknown;  // operators, each once
};

Result<OnnxRun> run_onnx(const OnnxModel& model, const OnnxSetting& setting);

// The sizes of its inputs alone, in their order, but those of weights. Errors as of run_onnx().
Result<std::vector<std::vector<int64_t>>> onnx_input_sizes(const OnnxModel& model,
                                                           const OnnxSetting& setting);

}  // namespace headroom::model
