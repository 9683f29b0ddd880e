#include "fit/megatron_file.h"

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "base/units.h"
#include "engines/megatron_script.h"
#include "fit/megatron_question.h"
#include "fit/smallest.h"

namespace headroom::fit {

namespace {

using engines::MegatronArguments;

constexpr int64_t kMostSequences = int64_t{1} << 31;  // that are read back

// Among how many machines: what was asked, else what the file gave torchrun.
void spread(const FitQuestion& question, MegatronArguments& to) {
  const int64_t world = question.ranks;
  int64_t nodes = to.nodes.value_or(1);
  if (to.ranks_per_node && world % *to.ranks_per_node == 0) nodes = world / *to.ranks_per_node;
  if (question.given.contains("nodes")) nodes = question.nodes;
  if (world % nodes != 0) nodes = 1;
  to.nodes = nodes;
  to.ranks_per_node = world / nodes;
}

Result<MegatronArguments> as_asked(const FitQuestion& question, const MegatronArguments& from) {
  MegatronArguments asked = as_given(question, from);
  const auto at_once = checked_multiply(question.batch, question.megatron->batches());
  asked.global_batch = at_once ? checked_multiply(*at_once, question.grad_accum) : std::nullopt;
  if (!asked.global_batch || *asked.global_batch > kMostSequences) {
    return Error{ErrorCode::usage, "a step has more sequences than Megatron-LM's arguments say",
                 "--emit megatron", "a smaller --batch or --grad-accum"};
  }
  if (!is_pytorchs(asked.allocator)) asked.allocator.clear();
  spread(question, asked);
  return asked;
}

// validate_args.
Result<void> check_positions(const MegatronArguments& a) {
  const int64_t longest = std::max(a.sequence, a.decoder_sequence);
  const int64_t positions = std::max(a.positions, a.longest);  // one of them is
  if (positions == 0 || longest <= positions) return {};
  return Error{ErrorCode::usage,
               "Megatron-LM refuses " + std::to_string(longest) + " tokens with " +
                   std::to_string(positions) + " positions",
               "--emit megatron", "--seq of that many; or other --max-position-embeddings"};
}

Result<void> check_place(const FitQuestion& question, const EmitRequest& request) {
  std::error_code none;
  const bool is_same = request.file == question.model ||
                       std::filesystem::equivalent(request.file, question.model, none);
  if (!is_same) return {};
  return Error{ErrorCode::usage, "is what the setting was read from", "--emit " + request.file,
               "name another file: what it says besides would be lost"};
}

std::vector<std::string> left_out(const MegatronArguments& a) {
  std::vector<std::string> names;
  for (const engines::OtherArgument& other : a.others) {
    if (!other.is_given) names.push_back(other.name);
  }
  // Where nobody says so, all GPUs are taken to be in one machine, as the answer has them.
  if (a.nodes == 1 && a.ranks_per_node > kMostOfAMachine) names.emplace_back("nodes");
  return names;
}

}  // namespace

Result<Emitted> emit_megatron(const FitQuestion& question, const MegatronArguments& from,
                              const EmitRequest& request) {
  if (request.kind != "megatron") {
    return Error{ErrorCode::usage, "is of other engines than Megatron-LM", "--emit " + request.kind,
                 "--emit megatron=FILE"};
  }
  HEADROOM_TRY(check_place(question, request));
  HEADROOM_ASSIGN(const MegatronArguments asked, as_asked(question, from));
  HEADROOM_TRY(check_positions(asked));
  Emitted emitted;
  emitted.kind = request.kind;
  emitted.file = request.file;
  emitted.command = engines::megatron_line(asked, request.file);
  emitted.by_hand = left_out(asked);
  if (!is_pytorchs(question.allocator)) emitted.by_hand.emplace_back("allocator");
  HEADROOM_TRY(write_file_atomic(request.file, engines::megatron_script(asked)));
  return emitted;
}

}  // namespace headroom::fit
