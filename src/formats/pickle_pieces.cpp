// Dicts and lists of a pickle, read in larger pieces than instructions: nine tenths of a recording
// are dicts of few shapes whose values are references and numbers, and lists of references.
//
// Each way of reading ends before the first thing that it does not know, with all before it carried
// out; the machine goes on from there instruction by instruction. So none of them has to know
// everything, and each damage is found where it always was.
#include "formats/pickle_machine.h"

namespace headroom::formats {

using namespace opcode;

// What a dict on top of the stack consists of, from behind its mark on: a piece that was read
// before; or pairs along a shape; or pairs.
const char* PickleMachine::read_dict(const char* at) {
  PickleDocument::Container& dict = document_.containers_[stack_.back().index()];
  const uint32_t expected = shapes_.expected();
  keys_.clear();
  if (expected == DictShapes::kNone) return push_mark() ? read_pairs(at) : then(false, at);
  const bool is_fresh = sink_ != nullptr && dict.is(State::empty);
  if (is_fresh && shapes_[expected].has_shareable) {
    if (const auto record = dicts_.follow(at, end_)) {
      dict.set(State::record, *record);
      return at;
    }
  }
  if (!push_mark()) return then(false, at);
  Along along{.at = at, .shape = expected};
  read_along(along);
  if (along.at == nullptr) return nullptr;
  if (along.is_whole) return end_dict(at, along, is_fresh);
  const auto begin = shapes_[along.shape].keys.begin();
  keys_.assign(begin, begin + static_cast<std::ptrdiff_t>(along.pairs));
  return read_pairs(along.at);
}

// Pairs whose keys are those of a shape, or of another one that begins alike. Ends before the end
// of the dict, or before what does not belong to it.
void PickleMachine::read_along(Along& along) {
  const DictKey* key = shapes_[along.shape].keys.data();
  const char* at = along.at;
  PickleValue* top = stack_.end();  // beside the stack's own, which is told at the end
  while (at < safe_end_) {
    if (!key->is_at(at)) {
      const uint32_t other = shapes_.other(along.shape, along.pairs, at);
      if (other == DictShapes::kNone) break;
      along.shape = other;
      key = shapes_[other].keys.data() + along.pairs;
    }
    start_ = at;
    if (key->is_end()) {
      along.is_whole = true;
      break;
    }
    *top++ = key->value;
    const char* const value = at + key->width;
    at = push_small(value, top);
    if (at == nullptr) {
      stack_.set_end(top);
      along.is_plain = false;
      at = push_other(value);
      if (at == nullptr) {
        along.at = error_.message.empty() ? value : nullptr;
        return;
      }
      top = stack_.end();
    }
    ++key;
    ++along.pairs;
  }
  stack_.set_end(top);
  along.at = at;
}

// The end of a dict that was read along a shape, from behind its mark at `begin`.
const char* PickleMachine::end_dict(const char* begin, const Along& along, bool is_fresh) {
  const char* const end = along.at + 1;
  shapes_.expect(along.shape);
  take_mark();
  if (!is_fresh) return then(set_items(group_, along.shape), end);
  target_ = stack_[stack_.size() - group_ - 1];
  const std::string_view bytes(begin, static_cast<size_t>(end - begin));
  const bool may_share = along.is_plain && shapes_[along.shape].has_shareable;
  if (may_share) {
    if (const auto record = dicts_.find(bytes)) {
      document_.containers_[target_.index()].set(State::record, *record);
      stack_.drop(group_);
      return end;
    }
  }
  if (!make_record(group_, along.shape)) return then(false, end);
  if (is_shareable_) {
    shapes_[along.shape].has_shareable = true;
    if (along.is_plain) dicts_.add(bytes, *document_.record(target_));
  }
  return end;
}

// Pairs of a reference and a small value, as many as there are, and SETITEMS where it follows.
// Their shape is learnt if the dict consists of them.
const char* PickleMachine::read_pairs(const char* at) {
  PickleValue* top = stack_.end();  // as in read_along()
  while (at < safe_end_) {
    start_ = at;
    const char* const value = push_reference(at, top);
    if (value == nullptr) break;
    if (keys_.size() <= DictShapes::kMostKeys) {
      keys_.push_back(DictKey::at(at, static_cast<size_t>(value - at), top[-1]));
    }
    at = push_small(value, top);
    if (at == nullptr) {
      stack_.set_end(top);
      at = push_other(value);
      if (at == nullptr) return error_.message.empty() ? value : nullptr;
      top = stack_.end();
    }
  }
  stack_.set_end(top);
  if (at >= safe_end_ || *at != kSetItems) return at;
  start_ = at;
  if (!take_mark()) return then(false, at + 1);
  const bool is_whole = group_ == 2 * keys_.size();
  const uint32_t shape = is_whole ? shapes_.learn(keys_) : DictShapes::kNone;
  if (!set_items(group_, shape)) return then(false, at + 1);
  if (is_shareable_ && shape != DictShapes::kNone) shapes_[shape].has_shareable = true;
  return at + 1;
}

// Null where no reference to something known begins at `at`.
[[gnu::always_inline]] inline const char* PickleMachine::push_reference(const char* at,
                                                                        PickleValue*& top) const {
  if (!is_reference(at)) return nullptr;
  const uint64_t index = reference_at(at);
  if (index >= memo_.size()) return nullptr;
  *top++ = memo_[index];
  return at + reference_bytes(at);
}

// A number, a reference or another value of one instruction; null for anything else.
[[gnu::always_inline]] inline const char* PickleMachine::push_small(const char* at,
                                                                    PickleValue*& top) {
  switch (*at) {
    case kReference:
    case kLongReference:
      return push_reference(at, top);
    case kByte:
      *top++ = document_.make_integer(byte_at(at + 1));
      return at + 2;
    case kTwoBytes:
      *top++ = document_.make_integer(static_cast<int64_t>(unsigned_at<2>(at + 1)));
      return at + 3;
    case kFourBytes:
      *top++ = document_.make_integer(static_cast<int32_t>(unsigned_at<4>(at + 1)));
      return at + 5;
    case kManyBytes: {
      const uint8_t length = byte_at(at + 1);
      if (length == 0 || length > 8) return nullptr;
      *top++ = document_.make_integer(long_at(at + 2, length));
      return at + 2 + length;
    }
    case kNone:
      *top++ = {};
      return at + 1;
    case kTrue:
    case kFalse:
      *top++ = {PickleKind::boolean, *at == kTrue ? uint64_t{1} : uint64_t{0}};
      return at + 1;
    default:
      return nullptr;
  }
}

// A text that lies in the window, or a list of references; null for anything else, or where it
// failed with an error.
const char* PickleMachine::push_other(const char* at) {
  if (*at == kEmptyList) return push_list(at + 1);
  uint64_t length = 0;
  if (*at == kShortText) {
    length = byte_at(at + 1);
    at += 2;
  } else if (*at == kText) {
    length = unsigned_at<4>(at + 1);
    at += 5;
  } else {
    return nullptr;
  }
  if (at > end_ || length > static_cast<uint64_t>(end_ - at)) return nullptr;
  push_text({at, length});
  start_ = at + length;
  return put(start_);
}

// An empty dict, and at once what mostly follows it: that it is remembered, and its items.
const char* PickleMachine::push_dict(const char* at) {
  push_container(PickleKind::dict);
  start_ = at;
  at = put(at);
  return at != nullptr && at < safe_end_ && *at == kMark ? open_mark(at + 1) : at;
}

const char* PickleMachine::push_list(const char* at) {
  push_container(PickleKind::list);
  start_ = at;
  at = put(at);
  if (at == nullptr || *at != kMark) return at;
  const char* const next = list_of_references(at + 1);
  return next != nullptr || !error_.message.empty() ? next : at;
}

// Fills the list on top of the stack, if a group of references and APPENDS begin at `at`; null if
// not, or if it failed.
const char* PickleMachine::list_of_references(const char* at) {
  PickleDocument::Container& list = document_.containers_[stack_.back().index()];
  const bool is_fresh = list.is(State::empty);
  if (is_fresh) {
    if (const auto record = lists_.follow(at, end_)) {
      list.set(State::record, *record);
      return at;
    }
  }
  const char* const end = end_of_references(at);
  if (end == nullptr) return nullptr;
  const std::string_view bytes(at, static_cast<size_t>(end - at));
  if (is_fresh) {
    if (const auto record = lists_.find(bytes)) {
      list.set(State::record, *record);
      return end;
    }
  }
  return fill_list(bytes, is_fresh);
}

// Behind the APPENDS that ends a group of references and nothing else; null where there is none in
// the window.
const char* PickleMachine::end_of_references(const char* at) const {
  while (at < end_ && is_reference(at)) at += reference_bytes(at);
  return at < end_ && *at == kAppends ? at + 1 : nullptr;
}

// `bytes` are references, and APPENDS.
const char* PickleMachine::fill_list(std::string_view bytes, bool is_fresh) {
  const char* at = bytes.data();
  const char* const end = at + bytes.size() - 1;
  const PickleValue target = stack_.back();
  size_t count = 0;
  stack_.reserve_more(bytes.size() + kMostWindow + kLongestInstruction);
  for (; at < end; ++count) {
    if (!recall(reference_at(at))) return nullptr;
    at += reference_bytes(at);
  }
  if (!append(count)) return nullptr;
  if (is_fresh && is_shareable_) lists_.add(bytes, *document_.record(target));
  return end + 1;
}

}  // namespace headroom::formats
