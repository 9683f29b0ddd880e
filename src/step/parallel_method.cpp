#include "step/parallel_method.h"

#include "step/ddp.h"
#include "step/fsdp1.h"
#include "step/fsdp2.h"
#include "step/gemini.h"
#include "step/megatron_ddp.h"
#include "step/zero12.h"
#include "step/zero3.h"

namespace headroom::step {

std::unique_ptr<ParallelMethod> make_parallel_method(const ParallelOptions& options,
                                                     const model::Graph& graph, op::Eager& eager,
                                                     Recorder& recorder) {
  if (const auto* ddp = std::get_if<DdpOptions>(&options)) {
    return make_ddp(graph, *ddp, eager, recorder);
  }
  if (const auto* zero = std::get_if<ZeroOptions>(&options)) {
    const auto make = zero->stage == 3 ? make_zero3 : make_zero12;
    return make(graph, *zero, eager, recorder);
  }
  if (const auto* gemini = std::get_if<GeminiOptions>(&options)) {
    return make_gemini(graph, *gemini, eager, recorder);
  }
  if (const auto* fsdp = std::get_if<FsdpOptions>(&options)) {
    const auto make = fsdp->version == 1 ? make_fsdp1 : make_fsdp2;
    return make(graph, *fsdp, eager, recorder);
  }
  if (const auto* megatron = std::get_if<MegatronOptions>(&options)) {
    return make_megatron_ddp(graph, *megatron, eager, recorder);
  }
  return nullptr;
}

}  // namespace headroom::step
