#include "fit/megatron/file.h"

#include <algorithm>

#include "base/file.h"
#include "base/units.h"
#include "engines/megatron_script.h"
#include "fit/megatron/question.h"
#include "fit/scenario/scenario.h"
#include "fit/search/smallest.h"

namespace headroom::fit {

namespace {

using engines::MegatronArguments;

constexpr int64_t kMostSequences = int64_t{1} << 31;  // that are read back

// Among how many machines: what was asked, else what the file gave torchrun.
void spread(const FitQuestion& question, MegatronArguments& to) {
  const int64_t world = question.ranks;
  int64_t nodes = to.nodes.value_or(1);
  if (to.ranks_per_node && world % *to.ranks_per_node == 0) nodes = world / *to.ranks_per_node;
  if (question.nodes > 1 || question.given.contains("nodes")) nodes = question.nodes;
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
  if (asked.allocator == kPlannedAllocator) asked.allocator.clear();
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

std::vector<std::string> left_out(const MegatronArguments& a) {
  std::vector<std::string> names;
  for (const engines::OtherArgument& other : a.others) {
    if (!other.is_given) names.push_back(other.name);
  }
  return names;
}

std::vector<std::string> notes_on(const FitQuestion& question, const MegatronArguments& a) {
  std::vector<std::string> notes;
  // Where nobody says so, as the answer has them.
  if (a.nodes == 1 && a.ranks_per_node > kMostOfAMachine) {
    notes.emplace_back(
        "in it all GPUs are in one machine: --nodes N here says how many machines there are");
  }
  if (question.allocator == kPlannedAllocator) notes.emplace_back(kNoPlan);
  return notes;
}

}  // namespace

Result<Emitted> emit_megatron(const FitQuestion& question, const MegatronArguments& from,
                              const EmitRequest& request) {
  HEADROOM_TRY(check_said(question, request.kind));
  HEADROOM_ASSIGN(const MegatronArguments asked, as_asked(question, from));
  HEADROOM_TRY(check_positions(asked));
  Emitted emitted;
  emitted.kind = request.kind;
  emitted.file = request.file;
  emitted.command = engines::megatron_line(asked, request.file);
  emitted.by_hand = left_out(asked);
  emitted.notes = notes_on(question, asked);
  HEADROOM_TRY(write_file_atomic(request.file, engines::megatron_script(asked)));
  return emitted;
}

}  // namespace headroom::fit
