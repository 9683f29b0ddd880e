#include "batch/checkpoint.h"

#include "timing/checkpoint_type.h"

namespace headroom::batch {

Result<void> take_checkpoint_type(const text::JsonView& config, BatchQuestion& question) {
  HEADROOM_ASSIGN(question.checkpoint_type, timing::checkpoint_type_of(config));
  const auto& type = question.checkpoint_type;
  if (!type) return {};
  if (!question.weight_type.empty() && question.weight_type != *type) {
    return Error{ErrorCode::usage,
                 "the checkpoint is in " + *type +
                     " already (config.json), and engines refuse to be told of " +
                     question.weight_type,
                 "--quantize", "it without; or the config.json of another checkpoint"};
  }
  timing::set_weight_type(*type, question.variant);
  return {};
}

Result<BatchQuestion> question_of_second(const text::JsonView& config, BatchQuestion question) {
  question.variant.weight_element_bytes.reset();
  question.variant.product_rate.reset();
  if (!question.weight_type.empty()) {
    timing::set_weight_type(question.weight_type, question.variant);
  }
  HEADROOM_TRY(take_checkpoint_type(config, question));
  return question;
}

Result<std::string> checkpoint_note(const BatchQuestion& question, const text::JsonView* config) {
  if (question.checkpoint_type) {
    return "weights in " + *question.checkpoint_type +
           ", as config.json says the checkpoint has them";
  }
  if (config == nullptr || !question.weight_type.empty()) return std::string();
  HEADROOM_ASSIGN(const auto method, timing::quantization_method_of(*config));
  if (!method) return std::string();
  return "config.json says that the checkpoint is quantized (" + *method +
         "), in a way that is not known here: predicted as if it were not; --quantize says what it "
         "is";
}

}  // namespace headroom::batch
