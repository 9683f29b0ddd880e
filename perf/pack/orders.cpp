// How near each order of the portfolio comes to the bound: one CSV line an order and instance.
//
// Of each instance the largest part (components.h) is taken. `gap_pct` is first fit's height over
// the part's target, `promoted_pct` the best of four promotions after it. Groups come at several
// shares of a turn (homo_groups.h): `open` is the portfolio's order of groups, `closed` stacks each
// group's plan as a box, in the best order of the portfolio, and `sunk` is first fit in the order
// of the closed boxes' offsets.
//
// Usage: headroom_packing_orders ALIGNMENT INSTANCE.csv...
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "formats/packing_csv.h"
#include "memory/packing/components.h"
#include "memory/packing/first_fit.h"
#include "memory/packing/homo_groups.h"
#include "memory/packing/orders.h"

namespace {

using namespace headroom;
using namespace headroom::memory;

struct Part {
  std::string instance;
  Sections sections;
  int64_t target = 0;  // what the bound of the whole leaves it
};

double gap_pct(const Part& part, int64_t height) {
  return 100 * static_cast<double>(height - part.target) / static_cast<double>(part.target);
}

// As ComponentSolver promotes.
int64_t promoted(const Part& part, std::vector<uint32_t> order, Placement placement) {
  int64_t best = placement.height;
  for (int i = 0; i < 4 && best > part.target; ++i) {
    std::stable_partition(order.begin(), order.end(), [&](uint32_t item) {
      return placement.offsets[item] + part.sections.items[item].size > part.target;
    });
    placement = first_fit(part.sections, order);
    best = std::min(best, placement.height);
  }
  return best;
}

void show(const Part& part, const std::string& order, int64_t height, int64_t promoted_height) {
  std::printf("%s,%u,\"%s\",%.5f,%.5f\n", part.instance.c_str(), part.sections.item_count(),
              order.c_str(), gap_pct(part, height), gap_pct(part, promoted_height));
}

void show_order(const Part& part, const std::string& name, const std::vector<uint32_t>& order) {
  const Placement placement = first_fit(part.sections, order);
  show(part, name, placement.height, promoted(part, order, placement));
}

void show_groups(const Part& part, double share) {
  const auto groups = homo_phase_groups(part.sections, share);
  const std::string of = "groups 1/" + std::to_string(static_cast<int>(1 / share));
  show_order(part, of + " open", homo_group_order(part.sections, share));
  std::vector<PackingItem> boxes;
  for (const auto& group : groups) boxes.push_back({group.begin, group.end, group.plan.height});
  const Sections stack = make_sections(boxes);
  Placement closed;
  for (size_t i = 0; i < order_count(); ++i) {
    Placement placement = first_fit(stack, make_order(stack, i));
    if (i == 0 || placement.height < closed.height) closed = std::move(placement);
  }
  show(part, of + " closed", closed.height, closed.height);
  std::vector<int64_t> offsets(part.sections.items.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    for (size_t i = 0; i < groups[g].items.size(); ++i) {
      offsets[groups[g].items[i]] = closed.offsets[g] + groups[g].plan.offsets[i];
    }
  }
  std::vector<uint32_t> order(offsets.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return offsets[a] < offsets[b]; });
  show_order(part, of + " sunk", order);
}

Part largest_part(const std::string& path, const PackingProblem& problem) {
  std::vector<uint32_t> requests;
  const Sections whole = make_sections(problem, requests);
  std::vector<int64_t> offsets(whole.items.size());
  Part part{path.substr(path.rfind('/') + 1), {}, 0};
  for (const Component& component : cut_into_components(whole, offsets)) {
    if (component.items.size() <= part.sections.items.size()) continue;
    part.sections = sections_of(whole, component);
    part.target = whole.highest_load - component.base;
  }
  return part;
}

}  // namespace

int main(int argc, char** argv) {
  std::printf("instance,requests,order,gap_pct,promoted_pct\n");
  for (int i = 2; i < argc; ++i) {
    auto instance = formats::read_packing_csv(argv[i]);
    if (!instance) {
      std::fprintf(stderr, "%s\n", instance.error().to_string().c_str());
      return 3;
    }
    instance->problem.alignment = std::max(1, std::atoi(argv[1]));
    const Part part = largest_part(argv[i], instance->problem);
    for (size_t order = 0; order < order_count(); ++order) {
      show_order(part, std::string(order_name(order)), make_order(part.sections, order));
    }
    for (const int turn : {4, 8, 16, 32, 64, 128}) show_groups(part, 1.0 / turn);
  }
  return 0;
}
