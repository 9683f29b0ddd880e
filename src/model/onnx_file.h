// OnnxModel: what an ONNX file says of a graph: its operators in their order, the sizes and types
// of its inputs and weights, and the values of small tensors, from which sizes of others follow.
//
// Weights are passed over, whether they are in the file or beside it (external data), so a file
// without them will do. Field numbers are those of onnx.proto (onnx/onnx, IR version 3 to 13).
// The file is hostile input: every length is held against what is left, what all items take in
// memory together is bounded, and names are taken as bytes. Blocking; the whole file is in memory
// while it is read; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "operator/dtype.h"

namespace headroom::model {

// A dimension of an input: a size, or open under a name ("batch_size"; "" where it has none).
struct OnnxDimension {
  std::optional<int64_t> size;
  std::string name;
};

// An input, an output, or a value in between of which the file says what it is.
struct OnnxDeclared {
  std::string name;
  std::optional<op::DType> dtype;  // nothing: text, a sequence, a type that we do not have
  std::vector<OnnxDimension> dimensions;
  bool has_shape = false;
};

struct OnnxTensor {
  std::string name;
  std::optional<op::DType> dtype;
  std::vector<int64_t> sizes;
  bool is_half_byte = false;   // two elements in a byte
  bool has_values = false;     // they are few, and in the file
  std::vector<double> values;  // as many as the sizes say
};

struct OnnxAttribute {
  std::string name;
  int64_t integer = 0;
  double number = 0;
  std::string text;
  std::vector<int64_t> integers;
  std::vector<double> numbers;
  std::optional<OnnxTensor> tensor;
};

struct OnnxNode {
  std::string name;
  std::string operation;            // "MatMul"
  std::string domain;               // "" or "ai.onnx": ONNX's own
  std::vector<std::string> inputs;  // "" where an optional one is left out
  std::vector<std::string> outputs;
  std::vector<OnnxAttribute> attributes;
  bool has_graph = false;  // as an attribute: a branch or a loop's body
};

struct OnnxModel {
  std::string file;
  std::string producer;
  int64_t opset = 1;  // of ONNX's own operators
  std::vector<OnnxNode> nodes;
  std::vector<OnnxTensor> weights;
  std::vector<OnnxDeclared> inputs;  // weights may be among them (IR version 3)
  std::vector<OnnxDeclared> known;   // values in between, and the outputs
};

// Errors: bad_input, with the byte at which it stands.
Result<OnnxModel> parse_onnx(std::string_view bytes, std::string file);
Result<OnnxModel> read_onnx(const std::string& path);

// Whether a path names an ONNX file.
[[nodiscard]] bool is_onnx_name(std::string_view name);

// ONNX's number of a type; nothing for text and for types that we do not have.
[[nodiscard]] std::optional<op::DType> onnx_dtype(int64_t number);

}  // namespace headroom::model
