// Graph: what a model's forward pass does, as a list of operators on values.
//
// A value stands for one Python tensor object. It is born by an operator and dies by a `drop`,
// where the last Python variable that held it goes; so the graph says when eager PyTorch may free
// it. Parameters, buffers and inputs are values too, and are never dropped.
//
// Layers are unrolled: a graph of a 7B model has a few thousand instructions. A Graph is concrete
// in batch and sequence and abstract in dtype: types follow from the parameters' when it is run.
// Made by GraphBuilder (builder.h) or from a traced module, rewritten by transformations in step/.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/small_vector.h"
#include "model/recording.h"
#include "operator/dtype.h"
#include "operator/kind.h"
#include "operator/tensor.h"

namespace headroom::model {

using op::Dims;
using op::DType;
using op::OpKind;

using ValueId = uint32_t;
inline constexpr ValueId kNoValue = UINT32_MAX;
using Operands = SmallVector<ValueId, 4>;
using Numbers = SmallVector<int64_t, 4>;
using ModuleId = uint32_t;

// What a parameter is for; lm_head stands apart everywhere.
enum class ParameterRole : uint8_t {
  embedding,
  lm_head,
  linear,
  expert,
  norm,
  bias,
  other,
  buffer
};

// How a weight comes to be that is quantized on the device while the model is loaded: first a copy
// in the model's type, and its blocks' maxima; then the weight and its tables; the first two go
// again. One of 8 bits is made of a second copy, in float16, and behind its table.
struct Loading {
  Dims copy;
  bool has_8_bits = false;
  int64_t maxima = 0;            // in float32; none where they stay
  std::vector<uint32_t> tables;  // indices of buffers
};

struct Parameter {
  std::string name;  // as in the state dict: "model.layers.0.mlp.up_proj.weight"
  Dims shape;
  ParameterRole role = ParameterRole::other;
  std::optional<uint32_t> tied_to;  // index of the parameter that holds the storage
  std::optional<DType> dtype;       // where it is not the model's own (a buffer kept in float32)
  int64_t packs = 0;  // of a quantized weight: the parameters in it; 0: each element is one
  bool trainable = true;
  bool persistent = true;          // buffers: in the state dict
  bool float8 = false;             // gathered in float8, where it is gathered
  bool adapter = false;            // added to a finished model: made after all its own parameters
  uint32_t chunk = 0;              // of the graph's, the first that it belongs to
  std::optional<Loading> loading;  // nothing: it comes as it is
  ValueId value = kNoValue;        // the value that stands for it in the instructions
};

struct Attributes {
  Numbers ints;  // sizes, dimensions, bounds: each operator's own, see builder.h
  double number = 0;
  std::optional<DType> dtype;
  bool flag = false;
};

struct Operation {
  OpKind kind{};
  ModuleId module = 0;
  Operands inputs;  // kNoValue where an optional input is absent
  Operands outputs;
  Attributes attributes;
  // Of a traced module: what is replayed in place of the kind.
  std::shared_ptr<const Recording> recording;
};

// A part of the graph with a meaning of its own, for labels and for the transformations.
enum class RegionKind : uint8_t {
  model,
  layer,
  attention,
  core_attention,  // from queries, keys and values to what is attended to
  mlp,
  lm_head,
  head_weight,  // a copy of lm_head's weight in another type, beside the weight itself
  logits,       // a copy of the logits, outside of the head
  loss,
  experts,  // those that a rank has of a mixture's, with the exchange of rows around them
  whole,    // all that torch.compile is given at once (step/transform/enclose.h)
  other
};

struct Region {
  RegionKind kind = RegionKind::other;
  std::string name;             // module path: "model.layers.0"
  std::vector<ValueId> inputs;  // what a checkpoint of this region would keep
  uint32_t positional = 1;  // how many of them Python passes by position: a reentrant checkpoint
                            // saves those, while its closure holds the others
  bool no_grad = false;     // runs under torch.no_grad()
  std::vector<ValueId> outputs;
  uint32_t begin = 0;  // instructions [begin, end): from its enter to its leave
  uint32_t end = 0;
};

enum class InstructionKind : uint8_t { operation, drop, enter, leave };

struct Instruction {
  InstructionKind kind = InstructionKind::operation;
  uint32_t index = 0;  // of the operation, the value, or the region
};

struct GraphInput {
  std::string name;  // "input_ids"
  Dims shape;
  std::optional<DType> dtype;  // nothing: the model's own type
  ValueId value = kNoValue;
  bool requires_grad = false;  // from the stage before, which gets its gradient
};

// A stretch of the graph that runs by itself: what one stage of a pipeline does between receiving
// and sending on.
struct GraphChunk {
  uint32_t begin = 0;  // instructions [begin, end)
  uint32_t end = 0;
  std::vector<GraphInput> inputs;
  ValueId logits = kNoValue;
  ValueId loss = kNoValue;
  std::vector<ValueId> outputs;
};

struct Graph {
  std::vector<Parameter> parameters;  // in the order of the module's named_parameters()
  std::vector<Parameter> buffers;
  std::vector<GraphInput> inputs;
  std::vector<std::string> modules;  // names, by ModuleId; [0] is ""
  std::vector<Operation> operations;
  std::vector<Region> regions;
  std::vector<Instruction> instructions;
  uint32_t value_count = 0;
  ValueId logits = kNoValue;
  ValueId loss = kNoValue;       // kNoValue for a model without one
  std::vector<ValueId> outputs;  // what the forward function returns besides the loss
  Dims passed_on;  // of BuildOptions::parts: sizes of what one gives to the next; else empty
  // Those before the last, where the graph runs in several: `inputs`, `loss`, `logits` and
  // `outputs` are the last one's.
  std::vector<GraphChunk> chunks_before;
};

// In the order in which a micro-batch goes through them; of most graphs the only one.
[[nodiscard]] std::vector<GraphChunk> chunks_of(const Graph& graph);

// Trainable or all parameters, tied ones once.
[[nodiscard]] int64_t parameter_count(const Graph& graph, bool trainable_only);

}  // namespace headroom::model
