#include "step/layer_unfold.h"

#include <algorithm>
#include <functional>

namespace headroom::step {

using memory::BufferInfo;
using memory::Category;
using memory::EventKind;
using memory::MemoryEvent;

bool LayerUnfolder::settle() {
  if (!touches_own_blocks_only()) return false;
  cut_into_visits();
  if (!pair_visits()) return false;
  for (uint32_t pair = 0; pair < pairs_.size(); ++pair) {
    if (!compare_pair(pair)) return false;
  }
  return settle_gradients() && make_pieces() && marks_are_outside() && all_accounted();
}

LayerUnfolder::Place LayerUnfolder::place_of(uint32_t buffer) const {
  const uint32_t visit = visit_of_block_[buffer - first_buffer()];
  return {visit, buffer - visits_[visit].begin.buffer};
}

// Nothing older goes, and the release of outputs only frees.
bool LayerUnfolder::touches_own_blocks_only() {
  const PassesRecording& r = *recording_;
  if (r.release.begin.event != r.passes.end.event || r.release.end.call != r.release.begin.call ||
      r.release.end.buffer != r.release.begin.buffer) {
    return false;
  }
  goes_.assign(r.passes.end.buffer - first_buffer(), false);
  for (uint32_t i = r.passes.begin.event; i < r.release.end.event; ++i) {
    if (event(i).buffer < first_buffer()) return false;
    if (event(i).kind == EventKind::free) goes_[event(i).buffer - first_buffer()] = true;
  }
  return true;
}

// A visit lasts until a call of another unit; calls of no unit belong to the visit they come in.
// What goes between two visits goes in the first: variables of a unit's own end.
void LayerUnfolder::cut_into_visits() {
  const Recorded& passes = recording_->passes;
  visits_.push_back({.begin = passes.begin, .end = passes.end});
  visit_of_block_.reserve(goes_.size());
  uint32_t at = passes.begin.event;
  const auto take_events_before = [&](uint32_t call) {
    for (; at < passes.end.event && event(at).operation <= call; ++at) {
      if (event(at).kind != EventKind::alloc) continue;
      if (event(at).operation == call) return;
      visit_of_block_.push_back(static_cast<uint32_t>(visits_.size()) - 1);
    }
  };
  for (uint32_t call = passes.begin.call; call < passes.end.call; ++call) {
    const int8_t kept = fold_->kept_of_module[recording_->trace.calls[call].module];
    if (kept == LayerFold::kNoUnit || kept == visits_.back().kept) continue;
    take_events_before(call);
    const RecorderPosition here{
        .event = at,
        .call = call,
        .buffer = first_buffer() + static_cast<uint32_t>(visit_of_block_.size())};
    visits_.back().end = here;
    visits_.push_back({.kept = kept, .begin = here, .end = passes.end});
  }
  take_events_before(UINT32_MAX);
}

bool LayerUnfolder::pair_visits() {
  for (uint32_t i = 0; i < visits_.size(); ++i) {
    if (!visits_[i].is_middle()) continue;
    if (i == 0 || i + 2 >= visits_.size()) return false;
    const bool is_descending = visits_[i].kept == 2;
    const int8_t before = is_descending ? 3 : 0;
    const int8_t second = is_descending ? 1 : 2;
    const int8_t after = is_descending ? 0 : 3;
    if (visits_[i - 1].kept != before || visits_[i + 1].kept != second ||
        visits_[i + 2].kept != after) {
      return false;
    }
    Pair pair;
    pair.is_descending = is_descending;
    pair.visits[0] = is_descending ? i + 1 : i;
    pair.visits[1] = is_descending ? i : i + 1;
    visits_[i].pair = visits_[i + 1].pair = static_cast<uint32_t>(pairs_.size());
    pairs_.push_back(std::move(pair));
    ++i;
  }
  return !pairs_.empty();
}

// Modules of kept units 1 and 2.
bool LayerUnfolder::is_same_module(uint32_t a, uint32_t b) const {
  if (fold_->kept_of_module[a] != 1) return a == b;
  return b == a + (full_unit(2) - full_unit(1)) * fold_->modules_per_unit;
}

bool LayerUnfolder::are_alike(const OperatorCall& a, const OperatorCall& b) const {
  return does_the_same(a, b) && is_same_module(a.module, b.module);
}

bool LayerUnfolder::are_alike(uint32_t buffer_a, uint32_t buffer_b) const {
  const BufferInfo& a = recording_->trace.memory.buffers[buffer_a];
  const BufferInfo& b = recording_->trace.memory.buffers[buffer_b];
  return a.requested_bytes == b.requested_bytes && a.stream == b.stream &&
         a.category == b.category && is_same_module(a.label, b.label) &&
         recording_->saved[buffer_a] == recording_->saved[buffer_b];
}

bool LayerUnfolder::compare_pair(uint32_t pair_index) {
  Pair& pair = pairs_[pair_index];
  const Visit& one = visits_[pair.visits[0]];
  const Visit& other = visits_[pair.visits[1]];
  const uint32_t events = one.end.event - one.begin.event;
  const uint32_t calls = one.end.call - one.begin.call;
  const uint32_t blocks = one.end.buffer - one.begin.buffer;
  if (other.end.event - other.begin.event != events || other.end.call - other.begin.call != calls ||
      other.end.buffer - other.begin.buffer != blocks) {
    return false;
  }
  for (uint32_t i = 0; i < calls; ++i) {
    if (!are_alike(recording_->trace.calls[one.begin.call + i],
                   recording_->trace.calls[other.begin.call + i])) {
      return false;
    }
  }
  for (uint32_t i = 0; i < blocks; ++i) {
    if (!are_alike(one.begin.buffer + i, other.begin.buffer + i)) return false;
  }
  pair.is_accounted.assign(blocks, false);
  pair.names.resize(fold_->units - 2);
  pair.references.resize(events);
  for (uint32_t i = 0; i < events; ++i) {
    const MemoryEvent& a = event(one.begin.event + i);
    const MemoryEvent& b = event(other.begin.event + i);
    if (a.kind != b.kind || a.operation - one.begin.call != b.operation - other.begin.call) {
      return false;
    }
    // Blocks are named in the order in which they are made, so those made here are the same.
    if (a.kind == EventKind::alloc) continue;
    Reference& reference = pair.references[i];
    if (!relate(one, other, a.buffer, b.buffer, reference)) return false;
    pairs_[reference.pair].is_accounted[reference.number] = true;
  }
  return true;
}

// Where what two like visits free stands to each of them. A neighbour of a middle unit may be a
// boundary unit, whose blocks are numbered otherwise; then the other visit tells.
bool LayerUnfolder::relate(const Visit& one, const Visit& other, uint32_t a, uint32_t b,
                           Reference& reference) {
  const Place place_a = place_of(a);
  const Place place_b = place_of(b);
  const Visit& from_a = visits_[place_a.visit];
  const Visit& from_b = visits_[place_b.visit];
  if (!from_a.is_middle() && !from_b.is_middle()) return false;
  if (!are_alike(a, b) && from_a.is_middle() && from_b.is_middle()) return false;
  const Reference seen_a{from_a.pair, from_a.kept - one.kept, place_a.number};
  const Reference seen_b{from_b.pair, from_b.kept - other.kept, place_b.number};
  if (from_a.is_middle() && from_b.is_middle()) {
    reference = seen_a;
    return seen_a == seen_b;
  }
  // From the last unit but one to the last, or from the second to the first.
  reference = from_a.is_middle() ? seen_a : seen_b;
  const int32_t to_boundary = from_a.is_middle() ? 1 : -1;
  const BufferInfo& info_a = recording_->trace.memory.buffers[a];
  const BufferInfo& info_b = recording_->trace.memory.buffers[b];
  return reference.unit_offset == to_boundary && info_a.requested_bytes == info_b.requested_bytes;
}

std::vector<LayerUnfolder::MiddleParameter> LayerUnfolder::middle_parameters() const {
  uint32_t values = 0;
  for (const model::ValueId value : recording_->parameters) values = std::max(values, value + 1);
  for (const auto& list : fold_->parameters) {
    for (const model::ValueId value : list) values = std::max(values, value + 1);
  }
  std::vector<MiddleParameter> by_value(values);
  for (uint32_t unit = 1; unit + 1 < fold_->units; ++unit) {
    const auto& list = fold_->parameters[unit - 1];
    for (uint32_t number = 0; number < list.size(); ++number) {
      by_value[list[number]] = {unit, number};
    }
  }
  std::vector<MiddleParameter> by_parameter;
  by_parameter.reserve(recording_->parameters.size());
  for (const model::ValueId value : recording_->parameters) by_parameter.push_back(by_value[value]);
  return by_parameter;
}

bool LayerUnfolder::settle_gradients() {
  const std::vector<MiddleParameter> middle = middle_parameters();
  std::vector<const GradientRecord*> kept[2];
  for (auto& list : kept) list.resize(fold_->parameters[0].size());
  for (size_t i = 0; i < middle.size(); ++i) {
    const auto& gradient = recording_->gradients[i];
    if (gradient &&
        (gradient->buffer < first_buffer() || goes_[gradient->buffer - first_buffer()])) {
      return false;
    }
    if (middle[i].unit == 0) continue;
    const bool is_one = middle[i].unit == full_unit(1);
    const bool is_other = middle[i].unit == full_unit(2);
    if (!is_one && !is_other && gradient) return false;
    if ((is_one || is_other) && gradient) kept[is_one ? 0 : 1][middle[i].number] = &*gradient;
  }
  for (size_t number = 0; number < kept[0].size(); ++number) {
    const GradientRecord* one = kept[0][number];
    const GradientRecord* other = kept[1][number];
    if ((one == nullptr) != (other == nullptr)) return false;
    if (one == nullptr) continue;
    const Place place = place_of(one->buffer);
    const Place place_other = place_of(other->buffer);
    const Visit& visit = visits_[place.visit];
    const Visit& visit_other = visits_[place_other.visit];
    if (!one->is_like(*other) || visit.kept != 1 || visit_other.kept != 2 ||
        visit.pair != visit_other.pair || place.number != place_other.number) {
      return false;
    }
    pairs_[visit.pair].is_accounted[place.number] = true;
  }
  return true;
}

bool LayerUnfolder::make_pieces() {
  pieces_.resize(visits_.size());
  for (size_t i = 0; i < visits_.size(); ++i) {
    const Visit& visit = visits_[i];
    if (visit.is_middle()) continue;
    if (!cut_held_groups(visit.begin.event, visit.end.event, pieces_[i])) return false;
  }
  return cut_held_groups(recording_->release.begin.event, recording_->release.end.event,
                         release_pieces_);
}

// Finds the places where blocks of middle units go that no unit's visit lets go: those of the one
// that ran first, then those of the other.
bool LayerUnfolder::cut_held_groups(uint32_t begin, uint32_t end, std::vector<Piece>& pieces) {
  const auto held_by = [&](uint32_t i) -> int8_t {
    if (i >= end || event(i).kind != EventKind::free) return LayerFold::kNoUnit;
    const Place place = place_of(event(i).buffer);
    const Visit& visit = visits_[place.visit];
    if (!visit.is_middle()) return LayerFold::kNoUnit;
    const Pair& pair = pairs_[visit.pair];
    return pair.is_accounted[place.number] ? LayerFold::kNoUnit : visit.kept;
  };
  uint32_t from = begin;
  std::vector<Place> held;
  for (uint32_t i = begin; i < end;) {
    const int8_t kept = held_by(i);
    if (kept == LayerFold::kNoUnit) {
      ++i;
      continue;
    }
    uint32_t group_end = i;
    while (held_by(group_end) == kept) ++group_end;
    const uint32_t count = group_end - i;
    for (uint32_t j = 0; j < count; ++j) {
      if (held_by(group_end + j) != 3 - kept) return false;
      const Place a = place_of(event(i + j).buffer);
      const Place b = place_of(event(group_end + j).buffer);
      if (a.number != b.number || visits_[a.visit].pair != visits_[b.visit].pair ||
          event(i + j).operation != event(i).operation ||
          event(group_end + j).operation != event(i).operation) {
        return false;
      }
      held.push_back(a);
    }
    pieces.push_back({Piece::Kind::as_recorded, from, group_end});
    pieces.push_back({Piece::Kind::held_to_the_end, i, group_end});
    from = group_end;
    i = group_end + count;
  }
  pieces.push_back({Piece::Kind::as_recorded, from, end});
  for (const Place& place : held) {
    pairs_[visits_[place.visit].pair].is_accounted[place.number] = true;
  }
  return true;
}

bool LayerUnfolder::marks_are_outside() const {
  const Recorded& passes = recording_->passes;
  for (uint32_t i = passes.begin.phase; i < passes.end.phase; ++i) {
    const PhaseMark& mark = recording_->trace.phases[i];
    const auto is_here = [&](const Visit& visit) {
      return visit.is_middle() && mark.first_event >= visit.begin.event &&
             mark.first_event <= visit.end.event && mark.first_call >= visit.begin.call &&
             mark.first_call <= visit.end.call;
    };
    if (std::ranges::any_of(visits_, is_here)) return false;
  }
  return true;
}

bool LayerUnfolder::all_accounted() const {
  for (const Pair& pair : pairs_) {
    if (std::ranges::count(pair.is_accounted, false) > 0) return false;
  }
  std::vector<bool> is_gradient(goes_.size());
  for (const auto& gradient : recording_->gradients) {
    if (gradient) is_gradient[gradient->buffer - first_buffer()] = true;
  }
  for (uint32_t i = 0; i < goes_.size(); ++i) {
    const BufferInfo& info = recording_->trace.memory.buffers[first_buffer() + i];
    if (!goes_[i] && !is_gradient[i] && info.category != Category::workspace) return false;
  }
  return true;
}

uint32_t LayerUnfolder::name_of(uint32_t buffer) const {
  const Place place = place_of(buffer);
  const Visit& visit = visits_[place.visit];
  if (!visit.is_middle()) return names_[place.visit] + place.number;
  return pairs_[visit.pair].names[full_unit(visit.kept) - 1] + place.number;
}

// Those that come before an event.
void LayerUnfolder::write_marks(Recorder& recorder, uint32_t event, uint32_t call_offset) {
  for (; next_mark_ < recording_->passes.end.phase; ++next_mark_) {
    PhaseMark mark = recording_->trace.phases[next_mark_];
    if (mark.first_event > event) return;
    mark.first_call += call_offset;
    recorder.write_phase(mark);
  }
}

// `call_offset` is added to what the recording calls a call.
void LayerUnfolder::write_as_recorded(Recorder& recorder, const Piece& piece,
                                      uint32_t call_offset) {
  const StepTrace& trace = recording_->trace;
  for (uint32_t i = piece.begin; i < piece.end; ++i) {
    write_marks(recorder, i, call_offset);
    const MemoryEvent& e = event(i);
    if (e.kind == EventKind::alloc) {
      recorder.write_alloc(trace.memory.buffers[e.buffer], e.operation + call_offset,
                           recording_->saved[e.buffer]);
    } else {
      recorder.write_free(name_of(e.buffer), e.operation + call_offset);
    }
  }
}

// What a middle unit does in a pair of visits. One that ran has its own recording; those that were
// skipped have the first one's.
void LayerUnfolder::write_unit(Recorder& recorder, Pair& pair, uint32_t unit) {
  const Visit& visit = visits_[pair.visits[unit == full_unit(2) ? 1 : 0]];
  const RecorderPosition start = recorder.position();
  const uint32_t call_offset = start.call - visit.begin.call;
  const uint32_t module_offset = (unit - full_unit(visit.kept)) * fold_->modules_per_unit;
  const auto module_of = [&](uint32_t module) {
    return fold_->kept_of_module[module] == visit.kept ? module + module_offset : module;
  };
  pair.names[unit - 1] = start.buffer;
  for (uint32_t i = visit.begin.event; i < visit.end.event; ++i) {
    const MemoryEvent& e = event(i);
    if (e.kind == EventKind::alloc) {
      BufferInfo info = recording_->trace.memory.buffers[e.buffer];
      info.label = module_of(info.label);
      recorder.write_alloc(info, e.operation + call_offset, recording_->saved[e.buffer]);
      continue;
    }
    const Reference& reference = pair.references[i - visit.begin.event];
    const uint32_t owner = unit + static_cast<uint32_t>(reference.unit_offset);
    const bool is_middle = owner >= 1 && owner + 1 < fold_->units;
    const uint32_t name =
        is_middle ? pairs_[reference.pair].names[owner - 1] + reference.number : name_of(e.buffer);
    recorder.write_free(name, e.operation + call_offset);
  }
  recorder.write_calls(calls_of(visit), module_of);
}

void LayerUnfolder::write_middle_units(Recorder& recorder, Pair& pair) {
  const uint32_t last = fold_->units - 2;
  for (uint32_t i = 0; i < last; ++i)
    write_unit(recorder, pair, pair.is_descending ? last - i : 1 + i);
}

// The skipped units' shares of what a loop held, between the two that ran.
void LayerUnfolder::write_held(Recorder& recorder, const Piece& piece, uint32_t call_offset) {
  const bool is_descending = visits_[place_of(event(piece.begin).buffer).visit].kept == 2;
  for (uint32_t i = 0; i < fold_->skipped_units(); ++i) {
    const uint32_t unit = is_descending ? fold_->units - 3 - i : 2 + i;
    for (uint32_t j = piece.begin; j < piece.end; ++j) {
      const Place place = place_of(event(j).buffer);
      recorder.write_free(pairs_[visits_[place.visit].pair].names[unit - 1] + place.number,
                          event(j).operation + call_offset);
    }
  }
}

RecorderPosition LayerUnfolder::size_of_passes() const {
  RecorderPosition size;
  for (const Visit& visit : visits_) {
    // The first of a pair stands for the skipped units too.
    const uint32_t times = visit.kept == 1 ? 1 + fold_->skipped_units() : 1;
    size.event += times * (visit.end.event - visit.begin.event);
    size.call += times * (visit.end.call - visit.begin.call);
    size.buffer += times * (visit.end.buffer - visit.begin.buffer);
  }
  return size;
}

void LayerUnfolder::write_passes(Recorder& recorder) {
  names_.assign(visits_.size(), 0);
  next_mark_ = recording_->passes.begin.phase;
  for (uint32_t v = 0; v < visits_.size(); ++v) {
    const Visit& visit = visits_[v];
    if (visit.is_middle()) {
      write_middle_units(recorder, pairs_[visit.pair]);
      ++v;  // both visits of the pair
      continue;
    }
    const RecorderPosition start = recorder.position();
    const uint32_t call_offset = start.call - visit.begin.call;
    names_[v] = start.buffer;
    for (const Piece& piece : pieces_[v]) {
      if (piece.kind == Piece::Kind::held_to_the_end) {
        write_held(recorder, piece, call_offset);
        continue;
      }
      write_as_recorded(recorder, piece, call_offset);
    }
    recorder.write_calls(calls_of(visit), std::identity{});
    if (v + 1 == visits_.size()) write_marks(recorder, visit.end.event, call_offset);
  }
}

void LayerUnfolder::write_release(Recorder& recorder) {
  const uint32_t call_offset = recorder.position().call - recording_->release.begin.call;
  for (const Piece& piece : release_pieces_) {
    if (piece.kind == Piece::Kind::held_to_the_end) {
      write_held(recorder, piece, call_offset);
    } else {
      write_as_recorded(recorder, piece, call_offset);
    }
  }
}

op::Eager::HeldWorkspaces LayerUnfolder::workspaces() const {
  op::Eager::HeldWorkspaces held = recording_->workspaces;
  for (auto* list : {&held.main, &held.lt}) {
    for (uint32_t& buffer : *list) {
      if (buffer != op::kNoBuffer) buffer = name_of(buffer);
    }
  }
  return held;
}

GradientRecords LayerUnfolder::gradients() const {
  const std::vector<MiddleParameter> middle = middle_parameters();
  std::vector<const GradientRecord*> of_first(fold_->parameters[0].size());
  for (size_t i = 0; i < middle.size(); ++i) {
    if (middle[i].unit == 1 && recording_->gradients[i]) {
      of_first[middle[i].number] = &*recording_->gradients[i];
    }
  }
  GradientRecords gradients(middle.size());
  for (size_t i = 0; i < middle.size(); ++i) {
    const bool was_skipped = middle[i].unit > 1 && middle[i].unit + 2 < fold_->units;
    if (!was_skipped) {
      gradients[i] = recording_->gradients[i];
      if (gradients[i]) gradients[i]->buffer = name_of(gradients[i]->buffer);
    } else if (const GradientRecord* like = of_first[middle[i].number]) {
      const Place place = place_of(like->buffer);
      gradients[i] = *like;
      gradients[i]->buffer =
          pairs_[visits_[place.visit].pair].names[middle[i].unit - 1] + place.number;
    }
  }
  return gradients;
}

}  // namespace headroom::step
