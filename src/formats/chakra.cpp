#include "formats/chakra.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "formats/operator_detail.h"

namespace headroom::formats {
namespace {

constexpr std::string_view kFormat = "Chakra";
constexpr int64_t kNsPerUs = 1000;
constexpr int64_t kUserScope = 7;  // RecordScope::USER_SCOPE: a range that a person named

// CollectiveCommType of the schema, by number.
constexpr std::string_view kCollectives[] = {"allreduce",  "reduce",         "allgather",
                                             "gather",     "scatter",        "broadcast",
                                             "all_to_all", "reduce_scatter", "reduce_scatter_block",
                                             "barrier"};

// A node, before it is known when it is to begin.
struct Kept {
  TraceEvent event;  // with its own duration alone
  uint64_t called_by = 0;
  uint64_t waits_for = 0;
  bool has_caller = false;
  bool has_wait = false;
  uint32_t first_child = kNone;
  uint32_t next_sibling = kNone;
};

std::optional<int64_t> ns_of(uint64_t us) {
  if (us > static_cast<uint64_t>(kMaxTraceNs / kNsPerUs)) return std::nullopt;
  return static_cast<int64_t>(us) * kNsPerUs;
}

TraceEventKind device_kind(const ChakraNode& node) {
  const bool moves = node.type == ChakraType::memory_load || node.type == ChakraType::memory_store;
  if (moves || node.name.starts_with("Memcpy")) return TraceEventKind::copy;
  return node.name.starts_with("Memset") ? TraceEventKind::fill : TraceEventKind::kernel;
}

class Reader {
 public:
  Reader(text::ByteFeed feed, const TraceLimits& limits)
      : nodes_(std::move(feed)), builder_(nodes_.name(), kFormat, limits) {}

  Result<Trace> read() {
    ChakraNode node;
    for (;;) {
      HEADROOM_ASSIGN(const bool is_node, nodes_.next(node));
      if (!is_node) break;
      ++builder_.trace().records;
      HEADROOM_TRY(take(node));
    }
    if (!nodes_.fault().empty()) {
      builder_.note(place(), nodes_.fault());
      builder_.trace().is_cut = true;
    }
    link_kernels();
    builder_.trace().has_starts = false;
    lay_out();
    for (const Kept& kept : kept_) HEADROOM_TRY(builder_.add(kept.event, place()));
    return builder_.finish();
  }

 private:
  [[nodiscard]] TracePlace place() const { return {nodes_.place()}; }

  Result<void> take(const ChakraNode& node) {
    if (!node.is_readable) {
      builder_.note(place(), "a message that is no node");
      return {};
    }
    if (node.type == ChakraType::metadata || node.type == ChakraType::other) return {};
    Kept kept;
    if (!builder_.set_times(kept.event, 0, ns_of(node.duration_us), place())) {
      return {};
    }
    if (by_id_.size() >= builder_.limits().events) {
      return Error{ErrorCode::bad_input, "has more nodes than can be read",
                   nodes_.name() + ": " + place().text(), "record fewer steps"};
    }
    // Before any piece is: what is left out must not become one's first.
    if (by_id_.contains(node.id)) {
      builder_.note(place(), "a second node of the id " + std::to_string(node.id));
      return {};
    }
    if (node.is_on_host && add_piece(node, kept.event.duration_ns)) return {};
    kept.called_by = node.called_by;
    kept.waits_for = node.waits_for;
    kept.has_caller = node.has_caller;
    kept.has_wait = node.has_wait;
    node.is_on_host ? describe_host(node, kept.event) : describe_device(node, kept.event);
    by_id_.emplace(node.id, static_cast<uint32_t>(kept_.size()));
    kept_.push_back(kept);
    return builder_.check_limits(place());
  }

  // A further piece of an operator that is there already.
  bool add_piece(const ChakraNode& node, int64_t duration_ns) {
    const std::string_view whole = whole_name(node);
    if (whole == node.name) return false;
    has_pieces_ = true;
    const auto [first, is_new] =
        pieces_.try_emplace(node.record_id, static_cast<uint32_t>(kept_.size()));
    if (is_new) return false;
    TraceEvent& event = kept_[first->second].event;
    const bool is_same = builder_.trace().names.at(event.name) == whole;
    if (!is_same || duration_ns > kMaxTraceNs - event.end_ns()) return false;
    by_id_.emplace(node.id, first->second);
    event.duration_ns += duration_ns;
    return true;
  }

  void describe_host(const ChakraNode& node, TraceEvent& event) {
    event.kind =
        node.scope == kUserScope ? TraceEventKind::annotation : TraceEventKind::host_operator;
    event.name = builder_.intern(whole_name(node));
    event.correlation = std::max<int64_t>(node.record_id, 0);
    event.track = builder_.track("", std::to_string(node.thread), false);
    const size_t most = builder_.limits().name;
    if (node.shapes.size() > most || node.types.size() > most) return;
    const std::string detail =
        operator_detail(json_of_python(node.shapes), json_of_python(node.types));
    if (!detail.empty()) event.detail = builder_.intern(detail);
  }

  void describe_device(const ChakraNode& node, TraceEvent& event) {
    event.kind = device_kind(node);
    event.name = builder_.intern(node.name);
    const int64_t stream = node.has_stream ? node.stream : node.thread;
    event.track = builder_.track("0", std::to_string(stream), true);
    const bool is_named = node.is_collective_known && node.collective >= 0 &&
                          node.collective < static_cast<int64_t>(std::size(kCollectives));
    if (!is_named) return;
    std::string detail(kCollectives[node.collective]);
    detail += " of " + std::to_string(node.collective_bytes) + " bytes";
    if (!node.process_group.empty()) detail += " in group " + std::string(node.process_group);
    event.detail = builder_.intern(detail);
  }

  // The node of that id, where it is an operator of the host.
  [[nodiscard]] uint32_t host_of(bool is_there, uint64_t id) const {
    const auto found = is_there ? by_id_.find(id) : by_id_.end();
    if (found == by_id_.end()) return kNone;
    return is_device(kept_[found->second].event.kind) ? kNone : found->second;
  }

  // To the operators that launched them, by ids of our own: the file's may be any.
  void link_kernels() {
    for (uint32_t i = 0; i < kept_.size(); ++i) {
      Kept& kept = kept_[i];
      if (!is_device(kept.event.kind)) {
        kept.event.external_id = int64_t{i} + 1;
        continue;
      }
      const uint32_t caller = host_of(kept.has_caller, kept.called_by);
      const uint32_t wait = host_of(kept.has_wait, kept.waits_for);
      const uint32_t first = has_pieces_ ? wait : caller;
      const uint32_t launcher = first != kNone ? first : has_pieces_ ? caller : wait;
      if (launcher != kNone) kept.event.external_id = int64_t{launcher} + 1;
    }
  }

  // Host operators one after the other, what was called behind the caller's own time and within it;
  // kernels one after the other on their streams.
  void lay_out() {
    const std::vector<uint32_t> callers = find_callers();
    std::vector<bool> is_placed(kept_.size());
    for (uint32_t i = 0; i < kept_.size(); ++i) {
      if (!is_device(kept_[i].event.kind) && callers[i] == kNone) place_tree(i, is_placed);
    }
    std::vector<int64_t> ends(builder_.trace().tracks.size());
    for (uint32_t i = 0; i < kept_.size(); ++i) {
      TraceEvent& event = kept_[i].event;
      if (is_device(event.kind)) {
        event.start_ns = ends[event.track];
        advance(ends[event.track], event.duration_ns);
        event.duration_ns = ends[event.track] - event.start_ns;
      } else if (!is_placed[i]) {
        place_tree(i, is_placed);  // of a ring of callers, which nothing leads to
      }
    }
  }

  // By node the host's node that called it, if any; and of each the list of those that it called.
  std::vector<uint32_t> find_callers() {
    std::vector<uint32_t> callers(kept_.size(), kNone);
    if (has_pieces_) return callers;
    for (auto i = static_cast<uint32_t>(kept_.size()); i-- > 0;) {
      Kept& kept = kept_[i];
      if (is_device(kept.event.kind)) continue;
      const uint32_t caller = host_of(kept.has_caller, kept.called_by);
      if (caller == kNone || caller == i) continue;
      // What another thread does is no part of what its caller did.
      if (kept_[caller].event.track != kept.event.track) continue;
      callers[i] = caller;
      kept.next_sibling = kept_[caller].first_child;
      kept_[caller].first_child = i;
    }
    return callers;
  }

  void place_tree(uint32_t root, std::vector<bool>& is_placed) {
    std::vector<uint32_t> open;
    uint32_t at = root;
    for (;;) {
      if (at != kNone && !is_placed[at]) {
        is_placed[at] = true;
        kept_[at].event.start_ns = host_end_;
        advance(host_end_, kept_[at].event.duration_ns);
        open.push_back(at);
        at = kept_[at].first_child;
        continue;
      }
      if (at != kNone) {  // placed already: of a ring
        at = kept_[at].next_sibling;
        continue;
      }
      if (open.empty()) return;
      TraceEvent& event = kept_[open.back()].event;
      event.duration_ns = host_end_ - event.start_ns;
      at = open.back() == root ? kNone : kept_[open.back()].next_sibling;
      open.pop_back();
    }
  }

  // No further than times may go.
  static void advance(int64_t& end_ns, int64_t duration_ns) {
    end_ns = duration_ns > kMaxTraceNs - end_ns ? kMaxTraceNs : end_ns + duration_ns;
  }

  ChakraNodes nodes_;
  TraceBuilder builder_;
  std::vector<Kept> kept_;
  std::unordered_map<uint64_t, uint32_t> by_id_;
  std::unordered_map<int64_t, uint32_t> pieces_;  // the first, by the profiler's id
  bool has_pieces_ = false;
  int64_t host_end_ = 0;
};

}  // namespace

std::string_view whole_name(const ChakraNode& node) {
  const std::string_view name = node.name;
  const size_t open = name.rfind('(');
  if (open == std::string_view::npos || open == 0 || open + 2 >= name.size()) return name;
  if (name.back() != ')' || node.record_id <= 0) return name;
  const std::string_view number = name.substr(open + 1, name.size() - open - 2);
  const bool is_number =
      std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; });
  const std::string_view whole = name.substr(0, open);
  const std::string_view schema = node.operator_schema;
  const bool begins_so = schema.size() > whole.size() && schema.starts_with(whole) &&
                         (schema[whole.size()] == '(' || schema[whole.size()] == '.');
  return is_number && begins_so ? whole : name;
}

Result<Trace> read_chakra(text::ByteFeed feed, const TraceLimits& limits) {
  return Reader(std::move(feed), limits).read();
}

}  // namespace headroom::formats
