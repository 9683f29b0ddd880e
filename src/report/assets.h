// The files of src/report/assets, as they were at build time. Static data, thread-safe, free.
#pragma once

#include <string_view>

namespace headroom::report {

[[nodiscard]] std::string_view page_html();  // the shell, with {{places}} to fill
[[nodiscard]] std::string_view page_css();
[[nodiscard]] std::string_view charts_js();

}  // namespace headroom::report
