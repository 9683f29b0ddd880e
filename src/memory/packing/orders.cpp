#include "memory/packing/orders.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include "memory/packing/homo_groups.h"

namespace headroom::memory {
namespace {

// Smaller comes first; equal keys leave items as they are.
using Key = std::array<int64_t, 3>;

struct Moments {
  uint32_t highest = 0;  // the section of the highest load
  uint32_t before = 0;   // the highest on either side of it
  uint32_t after = 0;
  uint32_t count = 0;  // of sections
};

Moments moments_of(const Sections& sections) {
  const auto& load = sections.load;
  const auto highest = std::max_element(load.begin(), load.end());
  const auto before = std::max_element(load.begin(), highest);
  const auto after = highest == load.end() ? highest : std::max_element(highest + 1, load.end());
  const auto index = [&](auto place) { return static_cast<uint32_t>(place - load.begin()); };
  return {index(highest), index(before), index(after), sections.count()};
}

int64_t length(const PackingItem& item) { return item.end - item.begin; }
bool lives_at(const PackingItem& item, uint32_t section) {
  return item.begin <= section && section < item.end;
}
// A product that overflows is as good as the largest: this only orders.
int64_t area(const PackingItem& item) {
  int64_t product = 0;
  return __builtin_mul_overflow(item.size, length(item), &product) ? INT64_MAX : product;
}
int64_t log_length(const PackingItem& item) {
  return std::bit_width(static_cast<uint64_t>(length(item)));
}

Key by_size_start(const PackingItem& item) { return {1, -item.size, item.begin}; }

// Items that live at the highest load in an order of their own, so that at that moment they fill
// the plan without a gap; then the others.
Key highest_by_start(const PackingItem& item, const Moments& at) {
  if (!lives_at(item, at.highest)) return by_size_start(item);
  return {0, item.begin, -int64_t{item.end}};
}
Key highest_by_end(const PackingItem& item, const Moments& at) {
  if (!lives_at(item, at.highest)) return by_size_start(item);
  return {0, -int64_t{item.end}, item.begin};
}
Key highest_by_length(const PackingItem& item, const Moments& at) {
  if (!lives_at(item, at.highest)) return by_size_start(item);
  return {0, -length(item), -item.size};
}
Key three_highest_by_end(const PackingItem& item, const Moments& at) {
  if (lives_at(item, at.highest)) return {-1, -int64_t{item.end}, item.begin};
  if (!lives_at(item, at.before) && !lives_at(item, at.after)) return by_size_start(item);
  return {0, -int64_t{item.end}, item.begin};
}

template <int kShare>
Key long_first(const PackingItem& item, const Moments& at) {
  const bool is_long = length(item) * kShare >= at.count;
  return {is_long ? 0 : 1, -item.size, item.begin};
}

template <int kStep>
Key by_log_length(const PackingItem& item, const Moments& /*at*/) {
  return {-(log_length(item) - 1) / kStep, -item.size, item.begin};
}

struct Order {
  std::string_view name;
  Key (*key)(const PackingItem& item, const Moments& at);
};

constexpr std::array kOrders{
    Order{"size, then start",
          [](const PackingItem& item, const Moments&) { return by_size_start(item); }},
    Order{"at the highest load by start", highest_by_start},
    Order{"long ones first (1/128)", long_first<128>},
    Order{"long ones first (1/64)", long_first<64>},
    Order{"size, then end",
          [](const PackingItem& item, const Moments&) {
            return Key{-item.size, -int64_t{item.end}, item.begin};
          }},
    Order{"at the highest load by end", highest_by_end},
    Order{"area",
          [](const PackingItem& item, const Moments&) {
            return Key{-area(item), item.begin, 0};
          }},
    Order{"at the highest load by length", highest_by_length},
    Order{"long ones first (1/32)", long_first<32>},
    Order{"at the three highest loads by end", three_highest_by_end},
    Order{"length in powers of four, then size", by_log_length<2>},
    Order{"length in powers of two, then size", by_log_length<1>},
    Order{"size, then length",
          [](const PackingItem& item, const Moments&) {
            return Key{-item.size, -length(item), item.begin};
          }},
    Order{"length, then size",
          [](const PackingItem& item, const Moments&) {
            return Key{-length(item), -item.size, item.begin};
          }},
    Order{"long ones first (1/8)", long_first<8>},
    Order{"at the highest load first, then size",
          [](const PackingItem& item, const Moments& at) {
            return Key{lives_at(item, at.highest) ? 0 : 1, -item.size, item.begin};
          }},
};

// Not a key but a plan of groups decides the order of the last one (homo_groups.h).
constexpr std::string_view kGroups = "HomoPhase groups by HomoSize";
constexpr double kTurn = 1.0 / 128;  // of the highest load

}  // namespace

size_t order_count() { return kOrders.size() + 1; }

std::string_view order_name(size_t which) {
  return which < kOrders.size() ? kOrders[which].name : kGroups;
}

std::vector<uint32_t> make_order(const Sections& sections, size_t which) {
  if (which == kOrders.size()) return homo_group_order(sections, kTurn);
  const Moments at = moments_of(sections);
  std::vector<Key> keys;
  keys.reserve(sections.items.size());
  for (const PackingItem& item : sections.items) keys.push_back(kOrders[which].key(item, at));
  std::vector<uint32_t> order(sections.items.size());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return keys[a] != keys[b] ? keys[a] < keys[b] : a < b; });
  return order;
}

}  // namespace headroom::memory
