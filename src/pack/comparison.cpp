#include "pack/comparison.h"

#include <algorithm>
#include <map>
#include <set>

namespace headroom::pack {
namespace {

struct Live {
  Bytes bytes;
  size_t blocks = 0;
};

using LiveBySite = std::map<std::string, Live>;

bool has_stacks(const Recording& recording) {
  return std::any_of(
      recording.blocks.begin(), recording.blocks.end(),
      [&](const RecordedBlock& block) { return recording.sites.site_of(block.stack) != 0; });
}

std::string site_words(const Recording& recording, const RecordedBlock& block, bool is_by_size) {
  if (is_by_size) return "blocks of " + format_bytes(Bytes(block.size));
  return recording.sites.site(recording.sites.site_of(block.stack)).words();
}

LiveBySite live_at_peak(const PackAnswer& answer, bool is_by_size) {
  LiveBySite live;
  const Recording& recording = *answer.recording;
  for (size_t i = 0; i < answer.requests.size() && i < recording.blocks.size(); ++i) {
    const memory::PackingRequest& request = answer.requests[i].request;
    if (request.lower > answer.loss->moment || request.upper <= answer.loss->moment) continue;
    Live& site = live[site_words(recording, recording.blocks[i], is_by_size)];
    // The sum of what lives was checked when it was planned: it fits.
    site.bytes += Bytes(recording.blocks[i].size);
    ++site.blocks;
  }
  return live;
}

// "optim/adam.py:80 step" without its line; the words themselves where they have none.
std::string without_line(const std::string& words) {
  const size_t colon = words.find(".py:");
  const size_t space = colon == std::string::npos ? colon : words.find(' ', colon);
  if (space == std::string::npos) return words;
  return words.substr(0, colon + 3) + words.substr(space);
}

// Sites of which only the line differs become one, where they are in one of the two alone.
void join_moved_lines(LiveBySite& before, LiveBySite& after) {
  std::set<std::string> unmatched;
  for (const auto& [site, live] : before) {
    if (!after.contains(site)) unmatched.insert(site);
  }
  for (const auto& [site, live] : after) {
    if (!before.contains(site)) unmatched.insert(site);
  }
  for (LiveBySite* const side : {&before, &after}) {
    for (const std::string& site : unmatched) {
      const auto at = side->find(site);
      const std::string joined = without_line(site);
      if (at == side->end() || joined == site) continue;
      Live& sum = (*side)[joined];
      sum.bytes += at->second.bytes;
      sum.blocks += at->second.blocks;
      side->erase(at);
    }
  }
}

std::vector<SiteGrowth> growth_of(const LiveBySite& before, const LiveBySite& after) {
  std::map<std::string, SiteGrowth> sites;
  for (const auto& [site, live] : before) {
    SiteGrowth& growth = sites[site];
    growth.bytes.before = live.bytes;
    growth.blocks_before = live.blocks;
  }
  for (const auto& [site, live] : after) {
    SiteGrowth& growth = sites[site];
    growth.bytes.after = live.bytes;
    growth.blocks_after = live.blocks;
  }
  std::vector<SiteGrowth> list;
  for (auto& [site, growth] : sites) {
    if (growth.bytes.growth().count == 0 && growth.blocks_before == growth.blocks_after) continue;
    growth.site = site;
    list.push_back(growth);
  }
  std::stable_sort(list.begin(), list.end(), [](const SiteGrowth& a, const SiteGrowth& b) {
    return a.bytes.growth() > b.bytes.growth();
  });
  return list;
}

Error no_recording(const std::string& file) {
  return Error{ErrorCode::bad_input, "this does not say what was held from the driver", file,
               "two recordings are compared: torch.cuda.memory._dump_snapshot()"};
}

}  // namespace

Result<Comparison> compare(PackAnswer after, const PackAnswer& before) {
  for (const PackAnswer* const each : {&before, &std::as_const(after)}) {
    if (!each->loss || !each->recording) return no_recording(each->file);
  }
  Comparison comparison;
  comparison.file = after.file;
  comparison.baseline = before.file;
  comparison.reserved = {before.loss->reserved, after.loss->reserved};
  comparison.allocated = {before.loss->allocated, after.loss->allocated};
  comparison.lost = {before.loss->lost(), after.loss->lost()};
  comparison.plan = {before.plan.size, after.plan.size};
  comparison.is_partial = before.is_partial || after.is_partial;
  comparison.requests_before = before.requests.size();
  comparison.requests_after = after.requests.size();
  comparison.is_by_size = !has_stacks(*before.recording) || !has_stacks(*after.recording);
  LiveBySite live_before = live_at_peak(before, comparison.is_by_size);
  LiveBySite live_after = live_at_peak(after, comparison.is_by_size);
  if (!comparison.is_by_size) join_moved_lines(live_before, live_after);
  comparison.sites = growth_of(live_before, live_after);
  comparison.answer = std::move(after);
  return comparison;
}

Result<Comparison> compare(const PackQuestion& question, const std::string& baseline) {
  PackQuestion earlier = question;
  earlier.file = baseline;
  HEADROOM_ASSIGN(const PackAnswer before, answer(earlier));
  HEADROOM_ASSIGN(PackAnswer after, answer(question));
  return compare(std::move(after), before);
}

}  // namespace headroom::pack
