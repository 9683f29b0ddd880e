#include "step/transform/quantize.h"

#include <map>

#include "step/transform/graph_rewriter.h"
#include "step/transform/linear_site.h"

namespace headroom::step {

using model::Attributes;
using model::DType;
using model::Graph;
using model::Operation;
using model::Parameter;
using model::ParameterRole;
using model::Var;
using op::Dims;
using op::OpKind;
using op::QuantizedFormat;

namespace {

constexpr int64_t kBlock = 64;         // weights that share an absolute maximum
constexpr int64_t kNestedBlock = 256;  // maxima that share one of their own
constexpr int64_t kNestedCodes = 256;
constexpr int64_t kCodes = 16;
constexpr int64_t kGptqBits = 4;

int64_t blocks_of(int64_t elements, int64_t block) { return (elements + block - 1) / block; }

// GPTQ's tools leave routers of experts alone: too small to pack, and too delicate.
bool is_router(std::string_view name) {
  return name.ends_with(".gate.weight") || name.ends_with(".router.weight");
}

bool is_other(const Parameter& parameter) {
  return parameter.role != ParameterRole::norm && parameter.role != ParameterRole::embedding &&
         parameter.role != ParameterRole::lm_head;
}

class QuantizeWriter {
 public:
  QuantizeWriter(const Graph& graph, const QuantizeOptions& options)
      : graph_(graph), options_(options), rewriter_(graph) {}

  Result<bool> choose() {
    std::vector<LinearSite> sites = linear_sites(graph_);
    // bitsandbytes quantizes whatever is a linear module, GPTQ the layers of the language model.
    if (options_.format != QuantizedFormat::gptq) {
      const std::vector<LinearSite> idle = idle_linear_sites(graph_);
      sites.insert(sites.end(), idle.begin(), idle.end());
    }
    for (const LinearSite& site : sites) {
      const Parameter& weight = graph_.parameters[site.weight];
      if (weight.role != ParameterRole::linear) continue;
      if (options_.format == QuantizedFormat::gptq && is_router(weight.name)) continue;
      const bool packs = site.in_features % 32 == 0 && site.out_features % 32 == 0;
      if (options_.format == QuantizedFormat::gptq && !packs) {
        return Error{ErrorCode::usage, weight.name + " cannot be packed by GPTQ", "--method",
                     "its kernel needs features divisible by 32"};
      }
      if (!site.is_idle) sites_.emplace(site.product, site);
      weights_.emplace(site.weight, site);
    }
    return !sites_.empty();
  }

  Graph run() {
    add_tables();
    Graph graph = rewriter_.run([this](const Operation& operation) { return replace(operation); });
    for (Parameter& parameter : graph.parameters) {
      parameter.trainable = false;
      if (options_.float32_rest && options_.format != QuantizedFormat::gptq) {
        parameter.dtype = DType::f32;
      }
      if (options_.float32_norms && parameter.role == model::ParameterRole::norm) {
        parameter.dtype = DType::f32;
      }
      if (options_.float32_others && is_other(parameter)) parameter.dtype = DType::f32;
    }
    for (const auto& [index, site] : weights_) pack(graph.parameters[index], site);
    for (auto& [index, loading] : loadings_) {
      graph.parameters[index].loading = std::move(loading);
    }
    return graph;
  }

 private:
  // Its index.
  uint32_t add_buffer(const std::string& name, const Dims& shape, DType dtype) {
    rewriter_.builder().buffer(name, shape, dtype, true);
    return static_cast<uint32_t>(graph_.buffers.size()) + added_buffers_++;
  }

  void add_tables() {
    if (options_.format == QuantizedFormat::nf4_double) {
      // One for all modules: the map of the quantized maxima.
      add_buffer("nested_quant_map", {kNestedCodes}, DType::f32);
    }
    for (const auto& [index, site] : weights_) {
      const std::string& name = graph_.parameters[index].name;
      switch (options_.format) {
        case QuantizedFormat::nf4:
        case QuantizedFormat::nf4_double:
          loadings_[index] = add_nf4_tables(name, site);
          break;
        case QuantizedFormat::int8:
          loadings_[index] = add_int8_table(module_of(name), site);
          break;
        case QuantizedFormat::gptq:
          add_gptq_tables(module_of(name), site);
          break;
      }
    }
  }

  // In the order of bitsandbytes' quantize_4bit.
  model::Loading add_nf4_tables(const std::string& name, const LinearSite& site) {
    const int64_t blocks = blocks_of(site.in_features * site.out_features, kBlock);
    model::Loading loading;
    loading.copy = {site.out_features, site.in_features};
    if (options_.format == QuantizedFormat::nf4) {
      loading.tables.push_back(add_buffer(name + ".absmax", {blocks}, DType::f32));
      loading.tables.push_back(add_buffer(name + ".quant_map", {kCodes}, DType::f32));
      return loading;
    }
    loading.maxima = blocks;
    loading.tables = {
        add_buffer(name + ".quant_map", {kCodes}, DType::f32),
        add_buffer(name + ".nested_offset", {}, DType::f32),
        add_buffer(name + ".nested_absmax", {blocks_of(blocks, kNestedBlock)}, DType::f32),
        add_buffer(name + ".absmax", {blocks}, DType::u8)};
    return loading;
  }

  // A row's scale. transformers' Bnb8bitQuantize (5.23) has the weight on the device, whence
  // Int8Params takes it by way of the host.
  model::Loading add_int8_table(const std::string& module, const LinearSite& site) {
    model::Loading loading;
    loading.copy = {site.out_features, site.in_features};
    loading.has_8_bits = true;
    loading.tables = {add_buffer(module + ".SCB", {site.out_features}, DType::f32)};
    return loading;
  }

  void add_gptq_tables(const std::string& module, const LinearSite& site) {
    const int64_t group = options_.group_size == 0 ? site.in_features : options_.group_size;
    const int64_t groups = blocks_of(site.in_features, group);
    add_buffer(module + ".qzeros", {groups, site.out_features / 32 * kGptqBits}, DType::i32);
    add_buffer(module + ".scales", {groups, site.out_features}, DType::f16);
    add_buffer(module + ".g_idx", {site.in_features}, DType::i32);
  }

  void pack(Parameter& weight, const LinearSite& site) const {
    weight.packs = site.in_features * site.out_features;
    switch (options_.format) {
      case QuantizedFormat::nf4:
      case QuantizedFormat::nf4_double:
        weight.shape = {blocks_of(weight.packs, 2 * op::element_size(options_.storage)), 1};
        weight.dtype = options_.storage;
        break;
      case QuantizedFormat::int8:
        weight.shape = {site.out_features, site.in_features};
        weight.dtype = DType::i8;
        break;
      case QuantizedFormat::gptq:
        weight.name = module_of(weight.name) + ".qweight";
        weight.shape = {site.in_features / 32 * kGptqBits, site.out_features};
        weight.dtype = DType::i32;
        break;
    }
  }

  // The weight first, as in `linear`; where the product is a Conv1D's addmm, on its rows.
  GraphRewriter::Outputs replace(const Operation& operation) {
    const auto at = sites_.find(rewriter_.index_of(operation));
    if (at == sites_.end()) return {};
    const LinearSite& site = at->second;
    const model::Operands& in = operation.inputs;
    Var x = rewriter_.value(in[site.conv1d ? 1 : 0]);
    Var weight = rewriter_.value(in[site.conv1d ? 2 : 1]);
    Var bias = site.conv1d ? rewriter_.value(in[0])
                           : rewriter_.value(in.size() > 2 ? in[2] : model::kNoValue);
    Attributes attributes;
    attributes.ints = {static_cast<int64_t>(options_.format), site.in_features, site.out_features,
                       static_cast<int64_t>(options_.weights)};
    attributes.dtype = options_.compute;
    attributes.flag = options_.calls_keep_inputs;
    std::vector<Var> inputs{std::move(x), std::move(weight), std::move(bias)};
    return {rewriter_.builder().apply(OpKind::quantized_linear, std::move(inputs),
                                      std::move(attributes))};
  }

  const Graph& graph_;
  const QuantizeOptions& options_;
  GraphRewriter rewriter_;
  std::map<uint32_t, LinearSite> sites_;         // by operation
  std::map<uint32_t, LinearSite> weights_;       // by parameter
  std::map<uint32_t, model::Loading> loadings_;  // by parameter
  uint32_t added_buffers_ = 0;
};

}  // namespace

Result<Graph> apply_quantization(const Graph& graph, const QuantizeOptions& options) {
  if (options.group_size < 0) {
    return Error{ErrorCode::usage, "group size " + std::to_string(options.group_size),
                 "--gptq-group", "a group has one input feature or more; 0 stands for all of them"};
  }
  QuantizeWriter writer(graph, options);
  HEADROOM_ASSIGN(const bool found, writer.choose());
  if (!found) {
    return Error{ErrorCode::bad_input, "the model has no linear module to quantize", "", ""};
  }
  return writer.run();
}

}  // namespace headroom::step
