// The pickle is read dict by dict: each is recognised by its keys, turned into a plain struct, and
// dropped; a list of them becomes a vector of structs. When the document is complete, the root says
// which list was what.
//
// A dict that is wrong makes its list wrong, which is an error only where that list matters: what a
// newer PyTorch puts beside segments and traces (host_segments, host_traces) may look alike.
//
// Keys and versions: torch/cuda/memory.py, torch/csrc/cuda/memory_snapshot.cpp and Module.cpp.
#include "formats/torch_snapshot.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/units.h"
#include "formats/pickle.h"
#include "formats/snapshot_fields.h"
#include "formats/torch_settings.h"
#include "text/gzip.h"

namespace headroom::formats {
namespace {

using memory::BlockState;
using memory::Snapshot;
using memory::SnapshotBlock;
using memory::SnapshotSegment;
using memory::TraceAction;
using memory::TraceEntry;
using Field = SnapshotField;

constexpr int64_t kMaxDevices = 1024;
constexpr int64_t kMaxUnpackedBytes = int64_t{1} << 36;
constexpr size_t kMostShown = 100;  // bytes of a text of the file in a note

Error bad(std::string message) {
  return Error{ErrorCode::bad_input, std::move(message), "", "is it a PyTorch memory snapshot?"};
}

// What a dict or a list of the pickle turned out to be, and which one of that kind.
enum class Kind : uint8_t {
  frame,
  entry,
  block,
  history,
  segment,
  annotation,
  wrong,  // with the number of its problem
  stack,
  entries,
  blocks,
  histories,
  segments,
  annotations,
  wrong_list,  // the same, of the first wrong thing in it
};
constexpr unsigned kKindBits = 4;
uint64_t record_of(Kind kind, size_t index) {
  return static_cast<uint64_t>(index) << kKindBits | static_cast<uint64_t>(kind);
}
Kind kind_of(uint64_t record) { return static_cast<Kind>(record & ((1 << kKindBits) - 1)); }
size_t index_of(uint64_t record) { return static_cast<size_t>(record >> kKindBits); }

// Structs of one kind in many short lists: the newest wait until they are appended to theirs.
template <typename T>
class Collected {
 public:
  // Returns its number.
  size_t add(T item) {
    waiting_.push_back(std::move(item));
    return taken_ + waiting_.size() - 1;
  }
  size_t new_list() {
    lists_.emplace_back();
    return lists_.size() - 1;
  }
  // Moves all that wait to a list. False if they are not `count` with numbers from `first` on,
  // where a file refers to one in two places.
  bool append(size_t list, size_t first, size_t count) {
    if (first != taken_ || count != waiting_.size()) return false;
    taken_ += count;
    std::vector<T>& items = lists_[list];
    if (items.empty()) {
      items.swap(waiting_);
    } else {
      items.insert(items.end(), std::make_move_iterator(waiting_.begin()),
                   std::make_move_iterator(waiting_.end()));
    }
    waiting_.clear();
    return true;
  }
  std::vector<T> take(size_t list) { return std::exchange(lists_[list], {}); }
  void drop_waiting() {
    taken_ += waiting_.size();
    waiting_.clear();
  }

 private:
  std::vector<T> waiting_;
  size_t taken_ = 0;  // numbers below it are in lists
  std::vector<std::vector<T>> lists_;
};

// Structs of one kind in few long lists, which are runs of one array.
template <typename T>
class Runs {
 public:
  size_t add(const T& item) {
    // Room costs nothing until it is used, and moving does.
    if (items_.size() == items_.capacity()) items_.reserve(4 * items_.size() + kFirstRoom);
    items_.push_back(item);
    return items_.size() - 1;
  }
  size_t new_list() {
    lists_.emplace_back();
    return lists_.size() - 1;
  }
  // False if they do not follow what the list has, or belong to another.
  bool append(size_t list, size_t first, size_t count) {
    Run& run = lists_[list];
    if (first < taken_ || (run.count > 0 && run.first + run.count != first)) return false;
    if (run.count == 0) run.first = first;
    run.count += count;
    taken_ = first + count;
    return true;
  }
  std::vector<T> take(size_t list) {
    const Run run = std::exchange(lists_[list], {});
    if (run.count == items_.size()) return std::move(items_);  // the usual case: one device
    const auto first = items_.begin() + static_cast<std::ptrdiff_t>(run.first);
    return {first, first + static_cast<std::ptrdiff_t>(run.count)};
  }

 private:
  static constexpr size_t kFirstRoom = 4096;
  struct Run {
    size_t first = 0;
    size_t count = 0;
  };
  std::vector<T> items_;
  std::vector<Run> lists_;
  size_t taken_ = 0;
};

struct PlacedSegment {
  int64_t device = 0;
  SnapshotSegment segment;
};

// Behind the word for "none of them".
std::span<const std::string_view> action_words() {
  static const auto words = [] {
    std::vector<std::string_view> list{""};
    for (int i = 0; i <= static_cast<int>(TraceAction::other); ++i) {
      list.push_back(memory::trace_action_name(static_cast<TraceAction>(i)));
    }
    return list;
  }();
  return words;
}

class SnapshotReader : public PickleSink {
 public:
  SnapshotReader() : actions_(action_words()) {}

  Made on_dict(const PickleDocument& document, int64_t place, uint32_t shape,
               std::span<const PickleValue> items) override {
    document_ = &document;
    fields_.load(document, shape, items);
    if (fields_.has(Field::filename)) return checked(Kind::frame, add_frame(), place);
    if (fields_.has(Field::action)) return checked(Kind::entry, add_entry(), place);
    if (fields_.has(Field::blocks)) return checked(Kind::segment, add_segment(), place);
    if (fields_.has(Field::state)) return checked(Kind::block, add_block(), place);
    if (fields_.has(Field::real_size)) return checked(Kind::history, add_history(), place);
    if (fields_.has(Field::stage)) return checked(Kind::annotation, add_annotation(), place);
    return {};
  }

  Made on_list(const PickleDocument& document, int64_t place, Record known,
               std::span<const PickleValue> items) override {
    document_ = &document;
    place_ = place;
    if (items.empty()) return {known, false};
    const Record first = document.record(items[0]);
    if (!first) return {};
    size_t in_order = 1;
    while (in_order < items.size() &&
           document.record(items[in_order]) == *first + (in_order << kKindBits)) {
      ++in_order;
    }
    if (in_order < items.size() || kind_of(*first) == Kind::wrong) {
      bool is_uniform = true;
      for (const PickleValue item : items) {
        const Record record = document.record(item);
        if (record && kind_of(*record) == Kind::wrong) return wrong_list(*record, items);
        is_uniform = is_uniform && record && kind_of(*record) == kind_of(*first);
      }
      if (!is_uniform) return {};
    }
    if (known && kind_of(*known) == Kind::wrong_list) return {known, false};
    if (kind_of(*first) == Kind::frame) return add_stack(known, items);
    return append(known, *first, items.size(), in_order == items.size());
  }

  Result<TorchSnapshot> finish(const PickleDocument& document) {
    document_ = &document;
    const PickleValue root = document.root();
    // torch.cuda.memory_snapshot() gives the list of segments alone.
    const auto segments = root.kind() == PickleKind::dict ? document.find(root, "segments") : root;
    if (!segments || segments->kind() != PickleKind::list) return bad("no list of segments");
    if (const auto maker = document.find(root, "generated_by")) {
      result_.notes.push_back("generated, not recorded: " +
                              std::string(document.text(*maker).substr(0, kMostShown)));
    }
    std::map<int64_t, Snapshot> devices;
    HEADROOM_ASSIGN(auto placed, take_list(Kind::segments, segments_, *segments, "'segments'"));
    for (PlacedSegment& one : placed) {
      devices[one.device].segments.push_back(std::move(one.segment));
    }
    if (const auto traces = document.find(root, "device_traces")) {
      HEADROOM_TRY(place_traces(*traces, devices));
    }
    for (auto& [number, device] : devices) {
      device.device = number;
      result_.devices.push_back(std::move(device));
    }
    if (const auto annotations = document.find(root, "external_annotations")) {
      HEADROOM_ASSIGN(result_.annotations, take_list(Kind::annotations, annotations_, *annotations,
                                                     "'external_annotations'"));
    }
    if (const auto settings = document.find(root, "allocator_settings")) {
      HEADROOM_ASSIGN(result_.settings, read_torch_settings(document, *settings, result_.notes));
    }
    note_host_memory();
    return std::move(result_);
  }

 private:
  // The record of a dict: number `index` of its kind, or what is wrong with it.
  [[gnu::always_inline]] Made checked(Kind kind, size_t index, int64_t place) {
    if (fields_.problem().empty()) [[likely]]
      return {record_of(kind, index), kind == Kind::frame};
    problems_.emplace_back(fields_.problem(), place);
    return {record_of(Kind::wrong, problems_.size() - 1), false};
  }
  [[nodiscard]] bool is_wrong() const { return !fields_.problem().empty(); }

  uint32_t text_number(PickleValue value) {
    if (value.kind() != PickleKind::text) return 0;
    const size_t index = value.index();
    if (index >= text_numbers_.size()) text_numbers_.resize(index + 1, 0);
    uint32_t& number = text_numbers_[index];
    if (number == 0) number = result_.sites.add_text(document_->text(value));
    return number;
  }

  // The call stack under `frames`, where that is a list of frames.
  [[nodiscard]] uint32_t stack_number() const {
    const Record record = document_->record(fields_[Field::frames]);
    if (!record || kind_of(*record) != Kind::stack) return 0;
    return static_cast<uint32_t>(index_of(*record));
  }

  size_t add_frame() {
    const int64_t line = fields_.integer(Field::line, 0);
    return result_.sites.add_frame(
        {text_number(fields_[Field::name]), text_number(fields_[Field::filename]), line});
  }

  Made add_stack(Record known, std::span<const PickleValue> items) {
    frames_.clear();
    if (known) {  // it goes on
      if (kind_of(*known) != Kind::stack) return {};
      const auto before = result_.sites.stack(static_cast<uint32_t>(index_of(*known)));
      frames_.assign(before.begin(), before.end());
    }
    for (const PickleValue item : items) {
      frames_.push_back(static_cast<uint32_t>(index_of(*document_->record(item))));
    }
    return {record_of(Kind::stack, result_.sites.add_stack(frames_)), true};
  }

  size_t add_entry() {
    TraceEntry entry;
    const uint8_t action = actions_.find(*document_, fields_[Field::action]);
    entry.action = action == 0 ? TraceAction::other : static_cast<TraceAction>(action - 1);
    if (fields_[Field::action].kind() != PickleKind::text) {
      fields_.complain("'action' is not a text");
    }
    if (entry.action == TraceAction::other) {  // nothing is known of what it carries
      entry.address = fields_.size(Field::addr, 0);
      entry.size = fields_.size(Field::size, 0);
    } else {
      const bool is_oom = entry.action == TraceAction::out_of_memory;
      entry.address = fields_.size(is_oom ? Field::device_free : Field::addr);
      entry.size = fields_.size(Field::size);
    }
    entry.stream = fields_.integer(Field::stream, 0);
    entry.time_us = fields_.integer(Field::time_us, 0);
    entry.stack = stack_number();
    return is_wrong() ? 0 : entries_.add(entry);
  }

  size_t add_history() {
    HistoryItem item;
    item.address = fields_.size(Field::addr);
    item.real_size = fields_.size(Field::real_size);
    item.stack = stack_number();
    return is_wrong() ? 0 : histories_.add(item);
  }

  size_t add_block() {
    SnapshotBlock block;
    block.address = fields_.size(Field::address, 0);
    block.size = fields_.size(Field::size);
    block.requested = fields_.size(Field::requested_size, 0);
    const std::string_view state = document_->text(fields_[Field::state]);
    if (state == "inactive") {
      block.state = BlockState::free;
    } else if (state == "active_allocated") {
      block.state = BlockState::allocated;
    } else if (state == "active_pending_free" || state == "active_awaiting_free") {
      block.state = BlockState::pending;
    } else {
      fields_.complain("unknown block state '" + std::string(state.substr(0, 40)) + "'");
    }
    block.stack = stack_number();
    const Record history = document_->record(fields_[Field::history]);
    if (history && kind_of(*history) == Kind::histories) {
      for (const HistoryItem& item : histories_.take(index_of(*history))) {
        block.history.emplace_back(item.address, item.real_size);
        if (block.stack == 0) block.stack = item.stack;  // the newest comes first
      }
    }
    return is_wrong() ? 0 : blocks_.add(std::move(block));
  }

  size_t add_segment() {
    PlacedSegment placed;
    SnapshotSegment& segment = placed.segment;
    placed.device = fields_.integer(Field::device, 0);
    if (placed.device < 0 || placed.device >= kMaxDevices) fields_.complain("device out of range");
    segment.address = fields_.size(Field::address);
    segment.total_size = fields_.size(Field::total_size);
    segment.allocated_size = fields_.size(Field::allocated_size, 0);
    segment.active_size = fields_.size(Field::active_size, 0);
    segment.stream = fields_.integer(Field::stream, 0);
    const std::string_view type = document_->text(fields_[Field::segment_type]);
    segment.is_small = type == "small";
    if (!segment.is_small && type != "large") {
      fields_.complain("'segment_type' is neither small nor large");
    }
    segment.is_expandable = fields_[Field::is_expandable].is_true();
    read_pool(segment);
    segment.stack = stack_number();
    read_blocks(segment);
    return is_wrong() ? 0 : segments_.add(std::move(placed));
  }

  void read_pool(SnapshotSegment& segment) {
    if (!fields_.has(Field::segment_pool_id)) return;
    const auto pair = document_->items(fields_[Field::segment_pool_id]);
    const auto first = pair.size() == 2 ? document_->integer(pair[0]) : std::nullopt;
    const auto second = pair.size() == 2 ? document_->integer(pair[1]) : std::nullopt;
    if (!first || !second) fields_.complain("'segment_pool_id' is not a pair of numbers");
    segment.pool_first = first.value_or(0);
    segment.pool_second = second.value_or(0);
  }

  void read_blocks(SnapshotSegment& segment) {
    auto blocks = take_list(Kind::blocks, blocks_, fields_[Field::blocks], "'blocks'");
    if (!blocks) return fields_.complain(blocks.error().message);
    segment.blocks = std::move(*blocks);
    // torch 2.0 gives blocks without addresses: they follow each other.
    int64_t address = segment.address;
    for (SnapshotBlock& block : segment.blocks) {
      if (block.address == 0) block.address = address;
      const auto next = checked_add(block.address, block.size);
      if (!next) return fields_.complain("a block ends beyond the address space");
      address = *next;
    }
  }

  size_t add_annotation() {
    TorchAnnotation annotation;
    annotation.is_start = document_->text(fields_[Field::stage]) == "START";
    annotation.name = text_number(fields_[Field::name]);
    annotation.device = fields_.integer(Field::device, 0);
    annotation.time_us = fields_.integer(Field::time_us, 0);
    return is_wrong() ? 0 : annotations_.add(annotation);
  }

  Made append(Record known, uint64_t first, size_t count, bool is_in_order) {
    switch (kind_of(first)) {
      case Kind::entry:
        return append_to(entries_, Kind::entries, known, first, count, is_in_order);
      case Kind::block:
        return append_to(blocks_, Kind::blocks, known, first, count, is_in_order);
      case Kind::history:
        return append_to(histories_, Kind::histories, known, first, count, is_in_order);
      case Kind::segment:
        return append_to(segments_, Kind::segments, known, first, count, is_in_order);
      case Kind::annotation:
        return append_to(annotations_, Kind::annotations, known, first, count, is_in_order);
      default:
        return {};  // a list of lists
    }
  }
  // What is right in a list with something wrong in it is left out with the rest.
  Made wrong_list(uint64_t wrong, std::span<const PickleValue> items) {
    for (const PickleValue item : items) {
      const Record record = document_->record(item);
      if (!record || kind_of(*record) == Kind::wrong) continue;
      const Kind kind = kind_of(*record);
      if (kind == Kind::block) blocks_.drop_waiting();
      if (kind == Kind::history) histories_.drop_waiting();
      if (kind == Kind::segment) segments_.drop_waiting();
      if (kind == Kind::annotation) annotations_.drop_waiting();
      break;
    }
    return {record_of(Kind::wrong_list, index_of(wrong)), false};
  }

  template <typename Collection>
  Made append_to(Collection& collected, Kind kind, Record known, uint64_t first, size_t count,
                 bool is_in_order) {
    if (known && kind_of(*known) != kind) return {};
    const size_t list = known ? index_of(*known) : collected.new_list();
    if (!is_in_order || !collected.append(list, index_of(first), count)) {
      problems_.emplace_back("a value is shared where none is expected", place_);
      return {record_of(Kind::wrong_list, problems_.size() - 1), false};
    }
    return {record_of(kind, list), false};
  }

  // The structs of a list, which may be empty. `name` is what a message calls it.
  template <template <typename> typename Collection, typename T>
  Result<std::vector<T>> take_list(Kind kind, Collection<T>& collected, PickleValue list,
                                   const std::string& name) {
    const Record record = document_->record(list);
    if (record && kind_of(*record) == kind) return collected.take(index_of(*record));
    if (record && kind_of(*record) == Kind::wrong_list) {
      const auto& [problem, place] = problems_[index_of(*record)];
      return bad(problem + " (in what ends at byte " + std::to_string(place) + ")");
    }
    const bool is_empty = !record && document_->items(list).empty();
    if (list.kind() == PickleKind::list && is_empty) return std::vector<T>();
    return bad(name + " is not a list of what it should hold");
  }

  Result<void> place_traces(PickleValue traces, std::map<int64_t, Snapshot>& devices) {
    if (traces.kind() != PickleKind::list) return bad("'device_traces' is not a list");
    const auto lists = document_->items(traces);
    for (size_t i = 0; i < lists.size(); ++i) {
      HEADROOM_ASSIGN(auto trace, take_list(Kind::entries, entries_, lists[i], "a trace"));
      if (trace.empty()) continue;
      if (i >= static_cast<size_t>(kMaxDevices)) return bad("device out of range");
      devices[static_cast<int64_t>(i)].trace = std::move(trace);
    }
    return {};
  }

  void note_host_memory() {
    const auto host = document_->find(document_->root(), "host_segments");
    if (host && (document_->record(*host) || !document_->items(*host).empty())) {
      result_.notes.emplace_back("pinned host memory is recorded too and was passed over");
    }
  }

  struct HistoryItem {
    int64_t address = 0;
    int64_t real_size = 0;
    uint32_t stack = 0;
  };

  const PickleDocument* document_ = nullptr;
  int64_t place_ = 0;  // of the list that is added to
  TorchSnapshot result_;
  SnapshotFields fields_;
  Vocabulary actions_;
  Runs<TraceEntry> entries_;
  Collected<SnapshotBlock> blocks_;
  Collected<HistoryItem> histories_;
  Collected<PlacedSegment> segments_;
  Collected<TorchAnnotation> annotations_;
  std::vector<std::pair<std::string, int64_t>> problems_;  // and where
  std::vector<uint32_t> text_numbers_;                     // by text of the pickle; 0: none yet
  std::vector<uint32_t> frames_;                           // of one stack
};

}  // namespace

Result<TorchSnapshot> parse_torch_snapshot(ByteSource& source) {
  SnapshotReader reader;
  HEADROOM_ASSIGN(const PickleDocument document, read_pickle(source, &reader));
  auto snapshot = reader.finish(document);
  if (!snapshot && snapshot.error().where.empty()) {
    Error error = std::move(snapshot).error();
    error.where = source.name();
    return error;
  }
  return snapshot;
}

Result<TorchSnapshot> read_torch_snapshot(const std::string& path) {
  HEADROOM_ASSIGN(ByteSource source, ByteSource::open(path));
  if (!text::is_gzip(source.peek(2))) return parse_torch_snapshot(source);
  HEADROOM_ASSIGN(const std::string content, text::read_input(path, Bytes{kMaxUnpackedBytes}));
  ByteSource unpacked(content, path);
  return parse_torch_snapshot(unpacked);
}

}  // namespace headroom::formats
