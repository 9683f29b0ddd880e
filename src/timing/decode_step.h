// One decode step of a model: its operators (decode_work), and what each kernel class (attention,
// matrix products, the rest) and the host take on a device, predicted (DecodePredictor).
//
// Operators and cache are counted on the step model's graph; the cache is appended in place. The
// step is that of a serving engine, whose norms, rotary embedding and activation are one kernel
// each, or of PyTorch's eager mode, where each operator is one.
// Latent attention (MLA) caches the latent, and every head reads it; a layer of linear attention
// reads and writes its state, whatever the length, in one kernel that is timed as one that goes
// element by element, among the other kernels. Of a prompt the latter is not counted. Neither is
// predicted in eager mode.
// Of a mixture of experts a batch wakes each expert with equal probability, and all that are awake
// are one grouped product. Times are the laws' (timing_model.h); the host and sampling are an
// engine's. Pure but for what it is given, and which must outlive it; thread-safe; some ten
// milliseconds to make for a 7B model, and as many a batch in eager mode, a hundredth of that else.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/provenance.h"
#include "base/result.h"
#include "base/units.h"
#include "device/device.h"
#include "operator/dtype.h"
#include "text/json.h"
#include "timing/call.h"
#include "timing/timing_model.h"

namespace headroom::timing {

// 90 % interval.
struct TimeInterval {
  double low_seconds = 0;
  double seconds = 0;
  double high_seconds = 0;
};

// The kernels of one class in a step.
struct KernelTime {
  TimeInterval time;
  double flops = 0;
  double bytes = 0;
  Provenance provenance = Provenance::calibrated;  // the weakest of its kernels
  std::string basis;  // of the kernel that takes longest, of those with that provenance
  [[nodiscard]] double arithmetic_intensity() const { return bytes > 0 ? flops / bytes : 0; }
  [[nodiscard]] double bytes_per_second() const {
    return time.seconds > 0 ? bytes / time.seconds : 0;
  }
};

struct DecodeStep {
  int64_t batch = 0;
  bool fits = true;  // weights and cache are within the memory
  Bytes kv_cache;
  KernelTime attention;
  KernelTime matmul;
  KernelTime other;
  KernelTime quantize;     // what brings inputs into the type of their product
  KernelTime collectives;  // nothing where there is one device
  TimeInterval host;
  TimeInterval step;
  Provenance provenance = Provenance::extrapolated;  // of the step; calibrated within the points
  double roofline_seconds = 0;                       // of attention and products, without host

  // The classes and the host together, as predicted: what shares are of.
  [[nodiscard]] double parts_seconds() const {
    return attention.time.seconds + matmul.time.seconds + other.time.seconds +
           quantize.time.seconds + collectives.time.seconds + host.seconds;
  }
};

// A call, so many times in a step.
struct CountedCall {
  Call call;
  int64_t times = 1;
  bool is_other_kernel = false;  // than those that its law was learned from
};

// What such a kernel's interval is wider by than the law's own: 90 % of the law's errors on
// FlashAttention's times on an H800 (InferSim's table), by the law of an H100, which
// AIConfigurator's table alone made, are below it (latent_attention_data_test.cpp). That is what
// another library's kernel of the same kind is off by; no time of the kernels it is used for is in
// it.
inline constexpr double kOtherKernelHalfWidthLog = 0.224;

// The operators of one step, before anything is timed.
struct DecodeWork {
  std::vector<CountedCall> attention;
  std::vector<CountedCall> matmul;
  std::vector<CountedCall> other;
  std::vector<CountedCall> quantize;     // of product_rate
  std::vector<CountedCall> collectives;  // of tensor parallelism
  Bytes kv_cache;
  int64_t vocabulary = 0;  // logits of a sequence
  int64_t operators = 0;   // of eager mode, views too
};

// Of a weight of four bits, with a scale of two bytes for 128 of them (GPTQ).
inline constexpr double kInt4Bytes = 0.5 + 2.0 / 128;

// What is otherwise than the model's configuration and its type say. Nothing: as they say.
struct DecodeVariant {
  std::optional<double> cache_element_bytes = std::nullopt;
  // Of products' weights, but for the last one's.
  std::optional<double> weight_element_bytes = std::nullopt;
  // Of products with those weights, where the device has it: a kernel before each brings what it
  // takes into that type. Without it weights are unpacked within the product.
  std::optional<device::Rate> product_rate = std::nullopt;
  // Those products quantize what they take themselves (linear_int8). DecodePredictor sets it by the
  // device's laws.
  bool quantizes_within = false;
  // Whose host and sampling, by its name among the timing laws; empty: today's engines'.
  std::string engine = {};
  // Whether prompts are read in pieces beside what decodes, where the engine does so.
  bool has_chunked_prefill = true;
  // Of a step the host's share, in place of the engine's law; 0: it works beside the GPU.
  std::optional<double> host_share = std::nullopt;
  std::optional<int64_t> kv_heads = std::nullopt;
  std::optional<int64_t> latent = std::nullopt;  // elements a token and layer, for all heads (MLA)
  std::optional<int64_t> window = std::nullopt;  // tokens that are kept, and looked at
  // Share of the bandwidth that attention reaches, in place of its law's: low, expected, high.
  std::optional<std::array<double, 3>> attention_share = std::nullopt;
  // Devices that share each layer (with two reductions a layer among them), and the layers.
  int64_t tensor_parallel = 1;
  int64_t pipeline_parallel = 1;
};
inline constexpr int64_t kMostParallel = 64;

struct DecodeOptions {
  int64_t context = 512;  // tokens in the cache of each sequence, the new one among them
  op::DType weights = op::DType::bf16;  // and cache
  bool is_eager = false;                // DecodePredictor sets it by the engine
  DecodeVariant variant = {};
};

inline constexpr double kMemoryShare = 0.9;  // what engines take of the device (vLLM's default)
// What weights and cache may take; 0 where the device's memory is not known.
[[nodiscard]] Bytes memory_for_decoding(const device::Device& device);
inline constexpr int64_t kMostBatch = 65536;
inline constexpr int64_t kMostContext = 16'777'216;

// An Error where the model cannot be built, or is of a kind that is not counted yet.
// REQUIRES: 1 <= batch <= kMostBatch, 2 <= options.context <= kMostContext.
Result<DecodeWork> decode_work(const text::JsonView& config, const DecodeOptions& options,
                               int64_t batch);

struct DecodeShapes;  // the model's operators, as counted once (decode_shapes.h)

class DecodePredictor {
 public:
  // An Error where the model cannot be built, or is of a kind that is not predicted yet.
  static Result<DecodePredictor> make(const text::JsonView& config, const device::Device& device,
                                      const DecodeOptions& options, const TimingModel& model);

  // An Error where the device lacks a figure that the laws need. REQUIRES: 1 <= batch <=
  // kMostBatch.
  [[nodiscard]] Result<DecodeStep> step(int64_t batch) const;

  [[nodiscard]] const Engine& engine() const { return *engine_; }
  // Without a product_rate where the device has none.
  [[nodiscard]] const DecodeVariant& variant() const { return options_.variant; }
  // As the model's configuration has them.
  [[nodiscard]] int64_t layers() const;  // with attention of any kind
  [[nodiscard]] int64_t heads() const;
  [[nodiscard]] int64_t kv_heads() const;
  [[nodiscard]] int64_t head_dim() const;
  [[nodiscard]] bool has_latent_attention() const;  // keys and values are one latent and a key
  // On one device: of tensor and pipeline parallel ones their share.
  [[nodiscard]] Bytes weights() const { return weights_; }
  [[nodiscard]] Bytes kv_of_one() const { return kv_of_one_; }  // one sequence of `context` tokens
  // What all layers take of so many rows, whether they decode or are of prompts: without attention,
  // host and sampling, with the head's product for one of them. An Error as of step(). REQUIRES:
  // 1 <= rows <= kMostContext.
  [[nodiscard]] Result<TimeInterval> rows(int64_t rows) const;
  // The attention of a prompt of `tokens`, alone. An Error as of step(). REQUIRES: 1 <= tokens <=
  // kMostContext.
  [[nodiscard]] Result<TimeInterval> prompt_attention(int64_t tokens) const;
  // Sequences whose cache fits beside the weights; 0: not even one.
  [[nodiscard]] int64_t largest_batch() const { return largest_batch_; }
  [[nodiscard]] double peak_bytes_per_second() const;
  [[nodiscard]] double peak_flops_per_second() const;

 private:
  [[nodiscard]] Result<DecodeWork> work(int64_t batch) const;
  // Beside kernels that take so long.
  [[nodiscard]] TimeInterval host_of(int64_t batch, int64_t operators, double kernels) const;
  // As wide as steps of servers were off, where such were among them; elsewhere at least that.
  [[nodiscard]] TimeInterval as_on_servers(TimeInterval time) const;
  DecodePredictor(const text::JsonView& config, const device::Device& device,
                  const DecodeOptions& options, const TimingModel& model)
      : config_(config), device_(&device), options_(options), model_(&model) {}
  text::JsonView config_;
  const device::Device* device_;
  DecodeOptions options_;
  const TimingModel* model_;
  const Engine* engine_ = nullptr;
  device::Rate rate_ = device::Rate::bf16;
  Bytes weights_;
  Bytes kv_of_one_;
  std::shared_ptr<const DecodeShapes> shapes_;
  int64_t largest_batch_ = 0;
};

}  // namespace headroom::timing
