// The bar of a search among settings, on a terminal: how much of a part of it is done, and how many
// settings were predicted and passed over so far. Nothing on a pipe, or with --quiet.
#pragma once

#include "cli/console.h"
#include "fit/search/search_progress.h"
#include "text/progress.h"

namespace headroom::cli {

class SearchBar {
 public:
  explicit SearchBar(const Console& console);

  // For a search that ends before the bar does.
  [[nodiscard]] fit::SearchProgress progress();

 private:
  text::Progress bar_;
};

}  // namespace headroom::cli
