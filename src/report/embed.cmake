# cmake -DOUTPUT=assets.cpp -DASSETS=a.css;b.js -P embed.cmake
#
# Writes each asset as a raw string that assets.h names: page.css becomes page_css(). Files are taken
# byte for byte; ")headroom_asset" may not occur in one.
set(code "// Written by embed.cmake from src/report/assets; change those.\n#include \"report/assets.h\"\n")
string(APPEND code "namespace headroom::report {\n")
foreach(asset IN LISTS ASSETS)
  get_filename_component(name "${asset}" NAME)
  string(REPLACE "." "_" name "${name}")
  file(READ "${asset}" content)
  string(FIND "${content}" ")headroom_asset" clash)
  if(NOT clash EQUAL -1)
    message(FATAL_ERROR "${asset} holds the delimiter of its raw string")
  endif()
  string(APPEND code "std::string_view ${name}() {\n  return R\"headroom_asset(${content})headroom_asset\";\n}\n")
endforeach()
string(APPEND code "}  // namespace headroom::report\n")
file(WRITE "${OUTPUT}" "${code}")
