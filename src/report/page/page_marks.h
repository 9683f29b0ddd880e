// What a hostile name must not add to a page (tests only).
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace headroom::report {

inline size_t count_of(const std::string& text, std::string_view part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// As many of each mark in a page with `hostile` in all of its names as in a tame one.
inline void expect_same_marks(const std::string& page, const std::string& tame,
                              const std::string& hostile) {
  for (const char* const mark :
       {"<script", "</script", "<img", "<svg", "<!--", "onerror=\"", "<"}) {
    EXPECT_EQ(count_of(page, mark), count_of(tame, mark)) << hostile << " as " << mark;
  }
}

// Words that would be markup, a comment, an attribute or a place of a template.
inline constexpr const char* kHostileWords[] = {"<script>alert(1)</script>",
                                                "\"><img src=x onerror=alert(1)>",
                                                "' onmouseover='alert(1)",
                                                "</script><svg onload=alert(1)>",
                                                "<!--",
                                                "]]>",
                                                "javascript:alert(1)",
                                                "{{script}}"};

}  // namespace headroom::report
