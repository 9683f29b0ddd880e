#include "memory/stream_order.h"

#include <algorithm>

namespace headroom::memory {

size_t StreamOrder::find(int64_t stream) const {
  for (size_t i = 0; i < count_; ++i) {
    if (streams_[i] == stream) return i;
  }
  return kNone;
}

size_t StreamOrder::find_or_add(int64_t stream) {
  const size_t found = find(stream);
  if (found != kNone || count_ == kMostStreams) return found;
  streams_[count_] = stream;
  return count_++;
}

StreamOrder::Ticket StreamOrder::record(int64_t stream) {
  const Ticket event = record_ours(stream);
  const size_t own = find(stream);
  if (own != kNone) told_[own] = knows_[own][own];
  return event;
}

StreamOrder::Ticket StreamOrder::record_ours(int64_t stream) {
  const size_t own = find_or_add(stream);
  if (own == kNone) return 0;
  if (events_.empty()) events_.resize(kKeptEvents);
  ++knows_[own][own];
  ++last_;
  events_[last_ % kKeptEvents] = {last_, knows_[own]};
  return last_;
}

void StreamOrder::wait(int64_t stream, Ticket event) {
  if (event == 0 || events_.empty()) return;
  const Event& held = events_[event % kKeptEvents];
  if (held.ticket != event) return;
  const size_t own = find_or_add(stream);
  if (own == kNone) return;
  Clock& knows = knows_[own];
  for (size_t i = 0; i < count_; ++i) knows[i] = std::max(knows[i], held.holds[i]);
}

StreamOrder::Epoch StreamOrder::epoch(int64_t stream) const {
  const size_t own = find(stream);
  return own == kNone ? 1 : knows_[own][own] + 1;
}

StreamOrder::Epoch StreamOrder::known(int64_t who, int64_t of) const {
  const size_t own = find(who);
  const size_t other = find(of);
  return own == kNone || other == kNone ? 0 : knows_[own][other];
}

std::optional<StreamOrder::Clock> StreamOrder::users(int64_t stream, Epoch requested) {
  const size_t own = find_or_add(stream);
  if (own == kNone) return std::nullopt;
  Clock clock{};
  for (size_t i = 0; i < count_; ++i) {
    if (i == own || knows_[i][own] >= requested) clock[i] = knows_[i][i] + 1;
  }
  return clock;
}

bool StreamOrder::comes_after(int64_t who, const Clock& users) const {
  const size_t own = find(who);
  for (size_t i = 0; i < count_; ++i) {
    if (i != own && users[i] > (own == kNone ? 0 : knows_[own][i])) return false;
  }
  return true;
}

bool StreamOrder::covers(int64_t who, int64_t of) const {
  const size_t own = find(who);
  const size_t other = find(of);
  if (own == kNone || other == kNone || told_[other] == 0) return false;
  for (size_t i = 0; i < count_; ++i) {
    const Epoch needed = i == other ? told_[i] : knows_[other][i];
    if (i != own && knows_[own][i] < needed) return false;
  }
  return true;
}

StreamOrder::Epoch StreamOrder::told(int64_t stream) const {
  const size_t own = find(stream);
  return own == kNone ? 0 : told_[own];
}

}  // namespace headroom::memory
