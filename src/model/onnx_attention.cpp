// Attention as one operator: ONNX's own of opset 23, and those that ONNX Runtime puts in a graph
// (domain com.microsoft). Definitions: docs/Operators.md of onnx/onnx, docs/ContribOperators.md of
// microsoft/onnxruntime.
//
// Keys that an earlier run left (a past, fixed or open) are looked at beside the new ones.
#include <algorithm>

#include "model/onnx_call.h"

namespace headroom::model {
namespace {

using op::DType;
using op::require;

// What attention works on, as one of its operators has it.
struct Heads {
  int64_t batch = 1, heads = 1, kv_heads = 1, queries = 1, keys = 1;
  int64_t size = 1;        // of a head of queries and keys
  int64_t value_size = 1;  // and of values
  bool is_causal = false;
};

// Pairs of a query and a key in each head: of causal ones, where the last query sees all keys.
double pairs(const Heads& of) {
  const auto queries = static_cast<double>(of.queries);
  const auto keys = static_cast<double>(of.keys);
  return of.is_causal && keys >= queries ? queries * (keys - (queries - 1) / 2) : queries * keys;
}

OnnxWork work_of(const Heads& of, DType type) {
  for (const int64_t size :
       {of.batch, of.heads, of.kv_heads, of.queries, of.keys, of.size, of.value_size}) {
    require(size >= 1, "attention over nothing");
  }
  require(of.kv_heads <= of.heads && of.heads % of.kv_heads == 0, "heads that do not fit");
  check_sizes({of.batch, of.heads, of.queries, std::max(of.size, of.value_size)});
  check_sizes({of.batch, of.heads, of.keys, std::max(of.size, of.value_size)});
  OnnxWork work;
  work.kind = OnnxWorkKind::attention;
  work.count = of.batch;
  work.heads = of.heads;
  work.kv_heads = of.kv_heads;
  work.m = of.queries;
  work.k = of.keys;
  work.n = of.size;
  work.type = type;
  work.is_causal = of.is_causal;
  work.flops = 2.0 * static_cast<double>(of.batch) * static_cast<double>(of.heads) * pairs(of) *
               static_cast<double>(of.size + of.value_size);
  return work;
}

int64_t head_size(int64_t width, int64_t heads) {
  require(heads >= 1 && width % heads == 0, "heads that do not fit");
  return width / heads;
}

// New keys, and those of input `past`, which has them along `axis`.
int64_t keys_of(const OnnxCall& call, int64_t made, size_t past, size_t axis) {
  if (!call.has(past) || call.in(past).rank() <= axis) return made;
  const int64_t keys = made + call.in(past).sizes[axis];
  check_sizes({keys});
  return keys;
}

// The caches behind the first result, each of all keys.
void make_caches(OnnxCall& call, const Heads& of, DType type) {
  call.make(1, {of.batch, of.kv_heads, of.keys, of.size}, type);
  call.make(2, {of.batch, of.kv_heads, of.keys, of.value_size}, type);
}

// com.microsoft: query of [batch, sequence, width], key and value alike, or by the head.
void run_multi_head_attention(OnnxCall& call) {
  const OnnxValue& query = call.in(0);
  require(query.rank() == 3 && call.has(1) && call.has(2) && call.in(1).rank() == call.in(2).rank(),
          "attention of packed operands");
  const OnnxValue& key = call.in(1);
  const OnnxValue& value = call.in(2);
  require(key.rank() == 3 || key.rank() == 4, "attention of packed operands");
  const bool is_by_head = key.rank() == 4;
  Heads of;
  of.batch = query.sizes[0];
  of.heads = of.kv_heads = call.integer("num_heads", 0);
  of.queries = query.sizes[1];
  of.keys = keys_of(call, key.sizes[is_by_head ? 2 : 1], 6, 2);
  of.size = head_size(query.sizes[2], of.heads);
  of.value_size = is_by_head ? value.sizes[3] : head_size(value.sizes[2], of.heads);
  of.is_causal = call.integer("unidirectional", 0) != 0;
  check_sizes({of.heads, of.value_size});
  call.make(0, {of.batch, of.queries, of.heads * of.value_size}, query.dtype);
  make_caches(call, of, query.dtype);
  call.launch_product(work_of(of, query.dtype));
}

void run_group_query_attention(OnnxCall& call) {
  const OnnxValue& query = call.in(0);
  require(query.rank() == 3 && call.has(1) && call.in(1).rank() == 3,
          "attention of packed operands");
  Heads of;
  of.batch = query.sizes[0];
  of.heads = call.integer("num_heads", 0);
  of.kv_heads = call.integer("kv_num_heads", 0);
  of.queries = query.sizes[1];
  of.keys = keys_of(call, call.in(1).sizes[1], 3, 2);
  of.size = of.value_size = head_size(query.sizes[2], of.heads);
  of.is_causal = true;
  call.make(0, query.sizes, query.dtype);
  make_caches(call, of, query.dtype);
  call.launch_product(work_of(of, query.dtype));
}

// com.microsoft's projects first: input [batch, sequence, width], weight [width, 3 x hidden]. What
// comes of it is what attention takes.
void run_projected_attention(OnnxCall& call) {
  const OnnxValue& input = call.in(0);
  const OnnxValue& weight = call.in(1);
  require(input.rank() == 3 && weight.rank() == 2 && weight.sizes[1] % 3 == 0 &&
              input.sizes[2] == weight.sizes[0],
          "sizes that do not fit");
  const int64_t hidden = weight.sizes[1] / 3;
  Heads of;
  of.batch = input.sizes[0];
  of.heads = of.kv_heads = call.integer("num_heads", 0);
  of.queries = input.sizes[1];
  of.keys = keys_of(call, input.sizes[1], 4, 3);
  of.size = of.value_size = head_size(hidden, of.heads);
  of.is_causal = call.integer("unidirectional", 0) != 0;
  call.make(0, {of.batch, of.queries, hidden}, input.dtype);
  call.make(1, {2, of.batch, of.heads, of.keys, of.size}, input.dtype);
  OnnxWork projection;
  projection.m = of.batch * of.queries;
  projection.k = input.sizes[2];
  projection.n = weight.sizes[1];
  projection.type = input.dtype;
  projection.has_weight = weight.is_weight;
  projection.flops =
      2.0 * static_cast<double>(input.elements()) * static_cast<double>(projection.n);
  const double bias = call.has(2) ? call.in(2).bytes() : 0;
  const double projected = static_cast<double>(projection.m) * static_cast<double>(projection.n) *
                           static_cast<double>(op::element_size(input.dtype));
  call.launch_product(projection, input.bytes() + weight.bytes() + bias, projected);
  const double others = call.bytes_read() - input.bytes() - weight.bytes() - bias;  // mask and past
  call.launch_product(work_of(of, input.dtype), projected + others, call.bytes_written());
}

// ONNX's own, of opset 23: [batch, heads, sequence, size], or three dimensions and q_num_heads.
void run_attention(OnnxCall& call) {
  if (call.node().domain == "com.microsoft") return run_projected_attention(call);
  const OnnxValue& query = call.in(0);
  const OnnxValue& key = call.in(1);
  const OnnxValue& value = call.in(2);
  require(query.rank() == key.rank() && key.rank() == value.rank() &&
              (query.rank() == 4 || query.rank() == 3),
          "sizes that do not fit");
  const bool is_by_head = query.rank() == 4;
  const size_t sequence = is_by_head ? 2 : 1;
  Heads of;
  of.batch = query.sizes[0];
  of.heads = is_by_head ? query.sizes[1] : call.integer("q_num_heads", 0);
  of.kv_heads = is_by_head ? key.sizes[1] : call.integer("kv_num_heads", 0);
  of.queries = query.sizes[sequence];
  of.keys = keys_of(call, key.sizes[sequence], 4, 2);
  of.size = is_by_head ? query.sizes[3] : head_size(query.sizes[2], of.heads);
  of.value_size = is_by_head ? value.sizes[3] : head_size(value.sizes[2], of.kv_heads);
  of.is_causal = call.integer("is_causal", 0) != 0;
  const OnnxWork work = work_of(of, query.dtype);
  Sizes sizes = query.sizes;
  sizes.back() = is_by_head ? of.value_size : of.heads * of.value_size;
  call.make(0, std::move(sizes), query.dtype);
  make_caches(call, of, query.dtype);
  call.make(3, {of.batch, of.heads, of.queries, of.keys}, query.dtype);
  call.launch_product(work);
}

constexpr NamedOnnxOperator kOperators[] = {
    {"MultiHeadAttention", run_multi_head_attention},
    {"GroupQueryAttention", run_group_query_attention},
    {"Attention", run_attention},
};

}  // namespace

OnnxOperator find_onnx_attention(std::string_view operation) {
  return find_named(kOperators, operation);
}

}  // namespace headroom::model
