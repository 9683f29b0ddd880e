#include "serving/endpoint.h"

#include <gtest/gtest.h>

namespace headroom::serving {
namespace {

TEST(Endpoint, TakesWhatPeopleHaveAtHand) {
  for (const char* url :
       {"http://host:8000", "http://host:8000/", "http://host:8000/v1", "http://host:8000/v1/"}) {
    const auto endpoint = parse_endpoint(url);
    ASSERT_TRUE(endpoint) << url;
    EXPECT_EQ(endpoint->completions(), "http://host:8000/v1/completions");
  }
  const auto behind = parse_endpoint("https://host/proxy/v1");
  ASSERT_TRUE(behind);
  EXPECT_EQ(behind->chat(), "https://host/proxy/v1/chat/completions");
}

TEST(Endpoint, RefusesTheRestWithoutPrintingSecrets) {
  for (const char* url : {"", "host:8000", "ftp://host", "file:///etc/passwd", "http://",
                          "http://:80", "http://host/?a=b", "http://host/#a", "http://host\r\nX: y",
                          "http://a b", "http://me:secret@host:8000"}) {
    const auto endpoint = parse_endpoint(url);
    ASSERT_FALSE(endpoint) << url;
    EXPECT_EQ(endpoint.error().code, ErrorCode::usage);
    EXPECT_EQ(endpoint.error().to_string().find("secret"), std::string::npos);
  }
  EXPECT_FALSE(parse_endpoint("http://" + std::string(3000, 'a')));
}

}  // namespace
}  // namespace headroom::serving
