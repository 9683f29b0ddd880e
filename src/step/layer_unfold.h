// LayerUnfolder: the passes of a step over all layers, written from a run of the folded model.
//
// Problem: a run over the units that a LayerFold keeps says what the passes do in each; to be
// written is what a run over all of them would have recorded: the same events, names, calls, marks.
// The recording is cut into visits: stretches of calls inside one unit. Forward comes from the
// first unit to the last and backward the other way, so the two middle units that ran (kept 1 and
// 2) are visited one right after the other, and the skipped ones are written in between.
// Invariants, which settle() checks; where one does not hold, the layers have to be run:
//   1. The two visits of a pair are alike: calls and blocks the same, events the same in relative
//      terms (own block; block of this unit or its neighbour from an earlier visit). So the units
//      between them, which have the same instructions (layer_fold.h) and begin like the second,
//      do the same.
//   2. Elsewhere blocks of middle units go one unit after the other (outputs that a loop held);
//      skipped units' go in their turn.
//   3. Every block made goes in the passes or with the outputs, gradients and the workspaces of
//      libraries excepted, and nothing older goes. Only boundary visits make workspaces.
//   4. Parameters of middle units have like gradients, in the same place.
// Linear in the events written.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "step/gradient_record.h"
#include "step/layer_fold.h"
#include "step/recorder.h"
#include "step/repeat.h"

namespace headroom::step {

// What a run of the folded model recorded of its first step.
struct PassesRecording {
  StepTrace trace;
  Recorded passes;
  Recorded release;         // of its outputs, right after
  std::vector<bool> saved;  // by buffer: counted as kept for backward
  GradientRecords gradients;
  op::Eager::HeldWorkspaces workspaces;
  std::vector<model::ValueId> parameters;  // by parameter: the value that stands for it
};

class LayerUnfolder {
 public:
  // Both must outlive the unfolder.
  LayerUnfolder(const LayerFold& fold, const PassesRecording& recording)
      : fold_(&fold), recording_(&recording) {}

  // To be called first: whether the rest may be.
  [[nodiscard]] bool settle();
  // A settled unfolder may be copied, to write more than once.
  [[nodiscard]] uint32_t skipped_units() const { return fold_->skipped_units(); }
  // How many events, calls and blocks write_passes() writes.
  [[nodiscard]] RecorderPosition size_of_passes() const;
  void write_passes(Recorder& recorder);
  void write_release(Recorder& recorder);
  // To be called after write_passes, in the blocks that were written: the gradients of all
  // parameters, and the libraries' workspaces.
  [[nodiscard]] GradientRecords gradients() const;
  [[nodiscard]] op::Eager::HeldWorkspaces workspaces() const;

 private:
  static constexpr uint32_t kNoPair = UINT32_MAX;

  struct Visit {
    int8_t kept = LayerFold::kNoUnit;
    uint32_t pair = kNoPair;  // of middle visits
    RecorderPosition begin;   // `phase` is not used
    RecorderPosition end;
    [[nodiscard]] bool is_middle() const { return kept == 1 || kept == 2; }
  };
  // A block of a middle unit, seen from a unit.
  struct Reference {
    uint32_t pair = 0;
    int32_t unit_offset = 0;
    uint32_t number = 0;  // among the blocks of its visit
    bool operator==(const Reference&) const = default;
  };
  // Two visits, one right after the other, to the middle units that ran.
  struct Pair {
    uint32_t visits[2] = {0, 0};        // of kept 1 and 2
    bool is_descending = false;         // kept 2 comes first
    std::vector<Reference> references;  // by event of a visit; of those that free
    std::vector<bool> is_accounted;     // by block number: known how it goes in every unit
    std::vector<uint32_t> names;        // by middle unit: of the first block written
  };
  // Events in order, written as they are or unit by unit.
  struct Piece {
    enum class Kind : uint8_t { as_recorded, held_to_the_end };
    Kind kind = Kind::as_recorded;
    uint32_t begin = 0;  // events; of a first group, where units' blocks go one after the other
    uint32_t end = 0;
  };
  struct Place {
    uint32_t visit = 0;
    uint32_t number = 0;
  };
  struct MiddleParameter {
    uint32_t unit = 0;  // 0: of none
    uint32_t number = 0;
  };

  [[nodiscard]] const memory::MemoryEvent& event(uint32_t i) const {
    return recording_->trace.memory.events[i];
  }
  [[nodiscard]] std::span<const OperatorCall> calls_of(const Visit& visit) const {
    return std::span(recording_->trace.calls)
        .subspan(visit.begin.call, visit.end.call - visit.begin.call);
  }
  [[nodiscard]] uint32_t first_buffer() const { return recording_->passes.begin.buffer; }
  [[nodiscard]] Place place_of(uint32_t buffer) const;
  [[nodiscard]] uint32_t full_unit(int8_t kept) const { return kept == 1 ? 1 : fold_->units - 2; }

  bool touches_own_blocks_only();
  void cut_into_visits();
  bool pair_visits();
  bool compare_pair(uint32_t pair);
  [[nodiscard]] bool are_alike(const OperatorCall& a, const OperatorCall& b) const;
  [[nodiscard]] bool are_alike(uint32_t buffer_a, uint32_t buffer_b) const;
  [[nodiscard]] bool is_same_module(uint32_t a, uint32_t b) const;
  bool relate(const Visit& one, const Visit& other, uint32_t a, uint32_t b, Reference& reference);
  bool make_pieces();
  bool cut_held_groups(uint32_t begin, uint32_t end, std::vector<Piece>& pieces);
  bool settle_gradients();
  [[nodiscard]] bool all_accounted() const;
  [[nodiscard]] bool marks_are_outside() const;
  [[nodiscard]] std::vector<MiddleParameter> middle_parameters() const;

  void write_marks(Recorder& recorder, uint32_t event, uint32_t call_offset);
  void write_as_recorded(Recorder& recorder, const Piece& piece, uint32_t call_offset);
  void write_unit(Recorder& recorder, Pair& pair, uint32_t unit);
  void write_middle_units(Recorder& recorder, Pair& pair);
  void write_held(Recorder& recorder, const Piece& piece, uint32_t call_offset);
  [[nodiscard]] uint32_t name_of(uint32_t buffer) const;

  const LayerFold* fold_;
  const PassesRecording* recording_;
  std::vector<Visit> visits_;
  std::vector<uint32_t> visit_of_block_;  // by block of the passes
  std::vector<bool> goes_;                // by block of the passes: it is freed
  std::vector<Pair> pairs_;
  std::vector<std::vector<Piece>> pieces_;  // by visit; of middle ones nothing
  std::vector<Piece> release_pieces_;
  uint32_t next_mark_ = 0;       // of phases, to be written
  std::vector<uint32_t> names_;  // by visit that is no middle one: of the first block written
};

}  // namespace headroom::step
