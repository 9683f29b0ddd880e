#include <algorithm>
#include <array>

#include "bench/decode.h"
#include "cli/bench_decode.h"
#include "cli/bench_device.h"
#include "cli/bench_flags.h"
#include "cli/bench_nongemm.h"
#include "cli/machine.h"
#include "cli/verb.h"

namespace headroom::cli {
namespace {

Error usage(std::string message, std::string hint = {}) {
  return Error{ErrorCode::usage, std::move(message), {}, std::move(hint)};
}

}  // namespace

Result<std::vector<int64_t>> batches_of(std::string_view words) {
  std::vector<int64_t> batches;
  if (words.empty()) return usage("--batches names no batch", "numbers, as in --batches 1,8,64");
  while (!words.empty() && batches.size() <= bench::kMostBatches) {
    const size_t comma = std::min(words.find(','), words.size());
    HEADROOM_ASSIGN(const int64_t batch, number_of<int64_t>(words.substr(0, comma), "batches", 1));
    batches.push_back(batch);
    words.remove_prefix(std::min(comma + 1, words.size()));
  }
  return batches;
}

namespace {

Result<int> run_bench(const Words& words, const Console& console) {
  const std::string what = words.operands.empty() ? "" : words.operands.front();
  constexpr std::array<std::string_view, 4> kKnown{"device", "decode", "nongemm", "merge"};
  const bool is_known = std::ranges::find(kKnown, what) != kKnown.end();
  if (is_known) HEADROOM_TRY(check_bench_flags(words));
  if (what == "device") return run_bench_device(words, console);
  if (what == "decode") return run_bench_decode(words, console);
  if (what == "nongemm") return run_bench_nongemm(words, console);
  if (what == "merge") return run_bench_merge(words, console);
  return usage(what.empty() ? "what is to be measured?"
                            : "'" + what.substr(0, 80) + "' is nothing that bench measures",
               "headroom bench device, headroom bench nongemm, or headroom bench decode MODEL");
}

}  // namespace

Verb bench_verb() {
  Verb verb;
  verb.name = "bench";
  verb.summary =
      "what operators cost on this machine, and models' non-GEMM work; decode steps by batch";
  verb.operands = "device | nongemm [MODEL...] | merge FILE FILE | decode MODEL";
  verb.most_operands = 64;
  verb.examples = {
      {"headroom bench device --quick",
       "this machine's operators in a minute, as laws that --calibration takes"},
      {"headroom bench nongemm --quick",
       "the paper's 17 models with random weights: how much of their time is no GEMM"},
      {"headroom bench nongemm gpt2 Qwen/Qwen3-0.6B --batches 1,8",
       "single models; yours too: the path of a config.json, FILE.onnx, or FILE.py:FUNCTION"},
      {"headroom bench decode openai-community/gpt2 --html decode.html",
       "the memory-gap paper's experiment on this machine: decode steps by batch, and its DRAM"},
      {"headroom bench decode facebook/opt-1.3b --device h100-sxm-64gb --predict --context 330",
       "the same without the machine"},
      {"headroom bench decode facebook/opt-1.3b --on cuda --batches 64 --counters 64=ncu.csv",
       "with the counters of `ncu --csv --page raw --target-processes all` of the same command"},
      {"headroom bench decode meta-llama/Llama-2-7b-hf --device a100-sxm-80gb --predict --json",
       "every figure with its interval and where it comes from"},
  };
  verb.flags = {
      {"on", "DEVICE", "to measure on: cpu (as without it), cuda or cuda:N"},
      {"quick", "",
       "bench device: in one minute, without it less than five; bench nongemm: batch 1, few runs; "
       "bench "
       "decode: four batches, few runs"},
      {"seconds", "N", "bench device: for about so long; others: for each setting or batch"},
      {"models", "NAME,...", "bench nongemm: also paper (as without it), today or all"},
      {"engine", "NAME,...",
       "bench nongemm: pytorch (eager), compiled (by Inductor), graphed (a CUDA graph), "
       "onnxruntime; without it the first and the last; device: onnxruntime, its products in "
       "place of PyTorch's operators; "
       "decode --predict: vllm@0.6, with the host of such servers, from 0.6 to before 0.8"},
      {"fuse", "none,basic,all",
       "bench nongemm: ONNX Runtime's levels; all, quickly none,all; all-GeluFusion: without that "
       "optimizer of its own"},
      {"quantize", "none,int8,int4",
       "bench nongemm: the engine's dynamic int8 (PyTorch on a GPU: LLM.int8()), its int4 of "
       "weights; none,int8, on a GPU none"},
      {"decode", "", "bench nongemm: also a decode step of language models"},
      {"threads", "N", "of the CPU; as many as PyTorch takes"},
      {"composed", "", "bench nongemm: the whole from few layers, even where it fits"},
      {"keep", "FOLDER",
       "bench nongemm, decode: records and traces, to go on with; headroom-nongemm or -decode"},
      {"results", "FILE",
       "what a run kept, shown: of bench device its calibration; nothing is measured"},
      {"layers", "N", "bench decode: of the model; without it as many as fit"},
      {"seed", "N", "bench device: other shapes, to judge by --calibration what 1 measured; 1"},
      {"save-calibration", "FILE", "bench device: where it is kept; NAME.calibration.json"},
      {kCalibrationFlag.name, kCalibrationFlag.value,
       "what bench device measured. bench decode: times by it, beside what is measured; bench "
       "device: whether two runs agree, and how far off it is on shapes that it did not measure"},
      {"predict", "",
       "bench decode: by laws fitted to published measurements (docs/formats/timing.md)"},
      {"device", "NAME",
       "with --predict: a GPU that `headroom devices` lists; that of this machine"},
      {"context", "TOKENS", "bench decode: in the cache of each sequence; 512"},
      {"batches", "N,N,...",
       "bench nongemm: items of a batch; bench decode: sequences that decode together; powers of "
       "two"},
      {"points", "FILE.csv",
       "with --predict: measured steps that correct the rest: batch,itl_ms; two at least"},
      {"counters", "N=FILE.csv,...",
       "bench decode: what ncu counted at batch N, by kernel class: DRAM bytes, tensor cores, "
       "stalls"},
      {"dtype", "TYPE",
       "of weights and cache: bfloat16, float16 or float32, which is what a CPU is measured with"},
      kJsonFlag,
      kHtmlFlag,
      kOutputFlag,
      kQuietFlag,
      kNoColorFlag,
      kHelpFlag};
  verb.run = run_bench;
  return verb;
}

}  // namespace headroom::cli
