// TrainingSetup: how a training is divided and run, as far as launchers and engines say it in
// files: accelerate's YAML, DeepSpeed's JSON, the arguments of HF's Trainer.
//
// Plain values. What is nothing the file does not say.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace headroom::engines {

enum class Sharing : uint8_t { none, ddp, fsdp1, fsdp2, zero1, zero2 };

// Of the arithmetic: of autocast where weights are float32, or of the weights themselves.
enum class Half : uint8_t { none, bf16, fp16 };

inline constexpr int64_t kMostDevices = 65'536;

struct TrainingSetup {
  std::optional<Sharing> sharing;
  int64_t ranks = 1;     // that a state is divided among
  int64_t replicas = 1;  // of all of them
  int64_t nodes = 1;
  std::optional<Half> mixed_precision;  // autocast
  std::optional<Half> weights;          // DeepSpeed keeps them in half precision
  bool is_accelerated = false;          // accelerate runs the loop
  std::optional<bool> checkpoints;
  std::optional<int64_t> batch;
  std::optional<int64_t> grad_accum;
  std::optional<double> clip;
  std::optional<int64_t> reduce_bucket_size;  // elements
  std::optional<bool> overlap_comm;
  std::optional<std::string> optimizer;  // HF's name
  std::vector<std::string> notes;        // what the file has and nobody looked at
};

}  // namespace headroom::engines
