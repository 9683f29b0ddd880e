# headroom_room(NAME SOURCES a.cpp ... [DEPS other ...] [LIBS target ...] [TESTS a_test.cpp ...]
#               [DATA_TESTS b_test.cpp ...])
#
# One room of src/: a static library headroom_NAME, its unit tests beside it (one executable a room,
# registered case by case), the rooms it may use (DEPS) and the libraries it hides (LIBS).
# DATA_TESTS need other people's data, which is not in the repo: they go into an executable of their
# own, carry the ctest label `data`, and run under `./test --all` only. A test that mentions
# HEADROOM_SOURCE_DIR is given the root of the repo as that; the others are not, since a path in a
# compiler's command keeps ccache from what another checkout has compiled.
include(GoogleTest)

function(headroom_room name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;DEPS;LIBS;TESTS;DATA_TESTS" ${ARGN})
  add_library(headroom_${name} STATIC ${ROOM_SOURCES})
  target_include_directories(headroom_${name} PUBLIC
    ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_compile_features(headroom_${name} PUBLIC cxx_std_20)
  # A room may end up in a shared library (src/api, src/runtime), which shows what it means to only.
  set_target_properties(headroom_${name} PROPERTIES
    POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_link_libraries(headroom_${name} PRIVATE headroom_warnings ${ROOM_LIBS})
  foreach(dep IN LISTS ROOM_DEPS)
    target_link_libraries(headroom_${name} PUBLIC headroom_${dep})
  endforeach()
  if(HEADROOM_TESTS AND ROOM_TESTS)
    headroom_room_test(${name} headroom_${name}_test "${ROOM_TESTS}")
  endif()
  if(HEADROOM_TESTS AND ROOM_DATA_TESTS)
    headroom_room_test(${name} headroom_${name}_data_test "${ROOM_DATA_TESTS}" LABELS data)
  endif()
endfunction()

# headroom_room_test(ROOM TARGET SOURCES [ctest property value ...])
function(headroom_room_test room target sources)
  add_executable(${target} ${sources})
  target_link_libraries(${target} PRIVATE headroom_${room} headroom_warnings GTest::gtest_main)
  foreach(source IN LISTS sources)
    file(STRINGS ${source} mentions REGEX HEADROOM_SOURCE_DIR LIMIT_COUNT 1)
    if(mentions)
      set_property(SOURCE ${source} APPEND PROPERTY
        COMPILE_DEFINITIONS HEADROOM_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    endif()
  endforeach()
  set(properties "")
  if(ARGN)
    set(properties PROPERTIES ${ARGN})
  endif()
  gtest_discover_tests(${target} TEST_PREFIX ${room}. DISCOVERY_TIMEOUT 60 ${properties})
endfunction()
