// `--measure`: a run's setting and peaks as rows of a file that `headroom fit --against` reads.
//
// Two rows a process that used a device, one a metric, with the columns of
// docs/formats/measurements.md. What a process could not see of its own setting stays empty, for
// its owner to fill in. A file that is there is added to, so the runs of a week make one file; one
// with other columns is refused before anything is run.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "run/answer.h"

namespace headroom::run {

// Whether rows can be added to the file: it is not there yet, or has our columns.
[[nodiscard]] Result<void> check_measured_file(const std::string& path);

struct Measured {
  std::string content;
  size_t rows = 0;  // that this run added
};

// `existing` with the rows of this run behind it; "" begins a file.
[[nodiscard]] Measured with_rows_of(const std::vector<ProcessReport>& processes,
                                    const std::string& existing);

// The number of rows that were added.
[[nodiscard]] Result<size_t> add_rows(const std::vector<ProcessReport>& processes,
                                      const std::string& path);

}  // namespace headroom::run
