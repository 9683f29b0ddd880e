# headroom_room(NAME SOURCES a.cpp ... [DEPS other ...] [LIBS target ...] [TESTS a_test.cpp ...])
#
# One room of src/: a static library headroom_NAME, its unit tests beside it (one executable a room,
# registered case by case), the rooms it may use (DEPS) and the libraries it hides (LIBS).
include(GoogleTest)

function(headroom_room name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;DEPS;LIBS;TESTS" ${ARGN})
  add_library(headroom_${name} STATIC ${ROOM_SOURCES})
  target_include_directories(headroom_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_compile_features(headroom_${name} PUBLIC cxx_std_20)
  target_link_libraries(headroom_${name} PRIVATE headroom_warnings ${ROOM_LIBS})
  foreach(dep IN LISTS ROOM_DEPS)
    target_link_libraries(headroom_${name} PUBLIC headroom_${dep})
  endforeach()
  if(ROOM_TESTS AND HEADROOM_TESTS)
    add_executable(headroom_${name}_test ${ROOM_TESTS})
    target_link_libraries(headroom_${name}_test PRIVATE headroom_${name} headroom_warnings GTest::gtest_main)
    gtest_discover_tests(headroom_${name}_test TEST_PREFIX ${name}. DISCOVERY_TIMEOUT 60)
  endif()
endfunction()
