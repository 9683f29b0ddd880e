// Where the time of a step goes that nobody has run: predicted from the model's graph by the laws
// of timing (timing/decode_step.h), each part with its 90 % interval.
//
// Decode steps as a serving engine makes them; prefill and training are in predicted_step.h. The
// parts of a decode step follow one another, so what making one faster would give is arithmetic,
// not a replay. Pure but for what it is given; some ten milliseconds.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "text/json.h"
#include "timing/decode_step.h"

namespace headroom::ops {

// How the weights of linear layers are kept, and what they are multiplied in.
enum class Quantize : uint8_t { none, int8, fp8, w4a16 };
std::optional<Quantize> parse_quantize(std::string_view name);
std::string_view name_of(Quantize quantize);

struct PredictedQuestion {
  std::string model;  // for people
  device::Device device;
  int64_t batch = 1;
  int64_t seq = 512;  // tokens in the cache of each sequence, the new one among them
  op::DType weights = op::DType::bf16;  // and of the cache
  Quantize quantize = Quantize::none;   // of linear layers but the head, by an engine's kernels
};

struct PredictedPart {
  std::string name;  // "gemm", "attention", "non_gemm", "quantize", "host"
  std::string title;
  double ms_low = 0, ms = 0, ms_high = 0;
  double pct = 0;               // of the parts together
  double flops = 0, bytes = 0;  // what its kernels compute and move; of a host neither
  // What the step would gain with this part twice as fast; low and high by its interval.
  double speedup_2x_low = 0, speedup_2x = 0, speedup_2x_high = 0;
  std::string provenance;  // of its kernels, the weakest
  std::string basis;
};

// Of a step of so many seconds, whose other parts stay as predicted: a part that takes more is also
// more of the whole.
[[nodiscard]] PredictedPart part_of(std::string_view name, std::string_view title,
                                    const timing::KernelTime& kernels, double whole_seconds);

struct PredictedRun {
  std::string model;
  std::string device;
  std::string phase = "decode";
  int64_t batch = 0;  // 0: not known, since a graph's sizes are fixed
  int64_t seq = 0;
  // Of decode and of a prefill weights and cache, of what an engine may take of the memory; of
  // other steps the weights alone, where they are more than all of it. The rest `headroom fit`
  // knows.
  bool fits = true;
  Bytes needed;                         // 0: not said
  Bytes available;                      // of the device's memory; 0: not known
  bool needs_more_than_weights = true;  // `needed` has the cache too
  double step_ms_low = 0, step_ms = 0, step_ms_high = 0;
  double roofline_ms = 0;  // attention and products at the device's peaks
  std::string engine;      // whose host and sampling; "": of the device alone (predicted_step.h)
  // Of a step of the device alone.
  std::string quantize = "none";
  bool fuse = false;
  int64_t launches = 0;
  std::optional<double> unchanged_ms;  // without quantizing and fusing
  std::string provenance;
  std::vector<PredictedPart> parts;  // the longest first
  std::vector<std::string> notes;    // what was taken for granted
};

// Weights, and the cache of all sequences, as an engine keeps them while it decodes. An Error where
// the model has no decode step that is predicted. REQUIRES: as of predict_decode.
Result<Bytes> memory_of_serving(const text::JsonView& config, const PredictedQuestion& question,
                                const timing::TimingModel& model);

// Says of a step that is not decode where it cannot fit: by what serving takes, where that is
// known, else by the weights alone.
void judge_memory(const device::Device& device, Bytes weights, std::optional<Bytes> serving,
                  PredictedRun& run);

// REQUIRES: 1 <= batch <= timing::kMostBatch, 2 <= seq <= timing::kMostContext.
Result<PredictedRun> predict_decode(const text::JsonView& config, const PredictedQuestion& question,
                                    const timing::TimingModel& model);

}  // namespace headroom::ops
