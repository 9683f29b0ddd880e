#include "report/pack/address_map.h"

#include <algorithm>
#include <map>

#include "report/page/columns.h"

namespace headroom::report {
namespace {

using text::Json;

constexpr size_t kMostFrames = 24;
constexpr size_t kMostStacksInFull = 4'000;  // the rest has its call site only

// One column of a table: a number of each row.
template <typename Row, typename Rows, typename Get>
Json column(const Rows& rows, const Get& get) {
  std::vector<int64_t> values;
  values.reserve(rows.size());
  for (const Row& row : rows) values.push_back(get(row));
  return column_of(values);
}

Json cells_json(const std::vector<MapCell>& cells, int64_t unit) {
  const auto each = [&](const auto& get) { return column<MapCell>(cells, get); };
  return Json::object()
      .set("count", cells.size())
      .set("start", each([](const MapCell& cell) { return cell.start; }))
      .set("span", each([](const MapCell& cell) { return cell.end - cell.start; }))
      .set("offset", each([&](const MapCell& cell) { return cell.low / unit; }))
      .set("size", each([&](const MapCell& cell) {
             return std::max<int64_t>(1, (cell.high - cell.low) / unit);
           }))
      .set("blocks", each([](const MapCell& cell) { return cell.count; }));
}

Json blocks_json(const AddressMap& map, const std::vector<size_t>& kept) {
  const auto each = [&](const auto& get) {
    return column<size_t>(kept, [&](size_t i) { return get(map.blocks[i]); });
  };
  const int64_t unit = map.unit;
  Json json = Json::object();
  json.set("count", kept.size())
      .set("start", each([](const MapBlock& block) { return block.start; }))
      .set("span", each([](const MapBlock& block) { return block.end - block.start; }))
      .set("size", each([&](const MapBlock& block) { return block.size / unit; }))
      .set("slack", each([](const MapBlock& block) { return block.size - block.asked; }))
      .set("planned", each([&](const MapBlock& block) { return block.planned / unit; }))
      .set("kind", each([](const MapBlock& block) { return block.kind; }))
      .set("stack", each([](const MapBlock& block) { return block.stack; }));
  if (map.has_recording) {
    // One above, so that 0 is "nowhere".
    json.set("recorded", each([&](const MapBlock& block) {
               return block.recorded ? *block.recorded / unit + 1 : 0;
             }));
  }
  return json;
}

Json held_json(const AddressMap& map) {
  const auto each = [&](const auto& get) { return column<MapRange>(map.held, get); };
  return Json::object()
      .set("count", map.held.size())
      .set("start", each([](const MapRange& range) { return range.start; }))
      .set("span", each([](const MapRange& range) { return range.end - range.start; }))
      .set("offset", each([&](const MapRange& range) { return range.offset / map.unit; }))
      .set("size", each([&](const MapRange& range) { return range.size / map.unit; }));
}

Json curve_json(const AddressMap& map) {
  const auto each = [&](const auto& get) { return column<MapPoint>(map.curve, get); };
  return Json::object()
      .set("count", map.curve.size())
      .set("moment", each([](const MapPoint& point) { return point.moment; }))
      .set("allocated", each([](const MapPoint& point) { return point.allocated; }))
      .set("reserved", each([](const MapPoint& point) { return point.reserved; }));
}

// Frames are shared between stacks: each text once.
Json stacks_json(const AddressMap& map) {
  std::map<std::string, int64_t> numbers;
  Json texts = Json::array();
  const auto number_of = [&](const std::string& words) {
    const auto [at, is_new] = numbers.try_emplace(words, static_cast<int64_t>(numbers.size()));
    if (is_new) texts.push_back(words);
    return at->second;
  };
  Json stacks = Json::array();
  for (const MapStack& stack : map.stacks) {
    Json frames = Json::array({number_of(stack.site)});
    for (size_t i = 0; i < stack.frames.size() && i < kMostFrames; ++i) {
      if (stacks.size() >= kMostStacksInFull) break;
      frames.push_back(number_of(stack.frames[i]));
    }
    stacks.push_back(std::move(frames));
  }
  return Json::object().set("texts", std::move(texts)).set("stacks", std::move(stacks));
}

Json data_of(const AddressMap& map) {
  const MergedMap merged = merge_map(map, kMostMapBlocks);
  Json kinds = Json::array();
  for (const MapKind& kind : map.kinds) {
    kinds.push_back(Json::object().set("key", kind.key).set("label", kind.label));
  }
  Json seconds = Json::array();
  for (const double second : map.seconds) seconds.push_back(second);
  return Json::object()
      .set("description", map.description)
      .set("unit", map.unit)
      .set("moments", map.moments)
      .set("peak", map.peak)
      .set("iterations", Json::object()
                             .set("count", map.iterations.size())
                             .set("start", column_of(map.iterations)))
      .set("seconds", std::move(seconds))
      .set("has_recording", map.has_recording)
      .set("is_simulated", map.is_simulated)
      .set("recorded_units", map.recorded_bytes / map.unit)
      .set("planned_units", map.planned_bytes / map.unit)
      .set("blocks", blocks_json(map, merged.kept))
      .set("merged_count", map.blocks.size() - merged.kept.size())
      .set("merged_recorded", cells_json(merged.recorded, map.unit))
      .set("merged_planned", cells_json(merged.planned, map.unit))
      .set("held", held_json(map))
      .set("kinds", std::move(kinds))
      .set("names", stacks_json(map))
      .set("curve", curve_json(map));
}

}  // namespace

Html address_map(const AddressMap& map) {
  Html html;
  html.raw("<div class=\"map\" data-chart=\"map\">");
  html.raw("<noscript><p class=\"missing\">").text(map.description);
  html.raw(" The map itself needs JavaScript.</p></noscript>").json(data_of(map));
  return html.raw("</div>\n");
}

}  // namespace headroom::report
