#include "pack/comparison.h"

#include <algorithm>
#include <map>

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

// Of those that the other side lacks, by their words without the line.
std::multimap<std::string, std::string> unmatched_sites(const LiveBySite& side,
                                                        const LiveBySite& other) {
  std::multimap<std::string, std::string> sites;
  for (const auto& [site, live] : side) {
    if (!other.contains(site)) sites.emplace(without_line(site), site);
  }
  return sites;
}

// Sites of which only the line differs become one, where each is in one of the two alone and both
// have such: what is new in a function that was there keeps its line.
void join_moved_lines(LiveBySite& before, LiveBySite& after) {
  const auto old_sites = unmatched_sites(before, after);
  const auto new_sites = unmatched_sites(after, before);
  const auto join = [](LiveBySite& side, const auto& own, const auto& others) {
    for (const auto& [joined, site] : own) {
      if (joined == site || !others.contains(joined)) continue;
      const Live moved = side.extract(site).mapped();
      side[joined].bytes += moved.bytes;
      side[joined].blocks += moved.blocks;
    }
  };
  join(before, old_sites, new_sites);
  join(after, new_sites, old_sites);
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

ComparedMoment moment_of(const PackAnswer& answer) {
  const uint32_t site = answer.loss->site;
  return {site == 0 ? std::string() : answer.recording->sites.site(site).words(),
          answer.loss->is_end_state};
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
  comparison.before = moment_of(before);
  comparison.after = moment_of(after);
  const std::string& old_site = comparison.before.site;
  const std::string& new_site = comparison.after.site;
  comparison.has_two_moments =
      !old_site.empty() && !new_site.empty() && without_line(old_site) != without_line(new_site);
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
