# headroom_room(NAME SOURCES a.cpp ... [DEPS other ...] [LIBS target ...] [TESTS a_test.cpp ...]
#               [DATA_TESTS b_test.cpp ...])
#
# One room of src/: a static library headroom_NAME, its unit tests beside it (one executable a room,
# registered case by case), the rooms it may use (DEPS) and the libraries it hides (LIBS).
# DATA_TESTS need other people's data, which is not in the repo: they go into an executable of their
# own, carry the ctest label `data`, and run under `./test --all` only. Their main and what they may
# ask for are tests/tools/room_test.h's: it alone knows where the repo is, since a path in a
# compiler's command keeps ccache from what another checkout has compiled.
#
# Where the standard library's headers are precompiled (HeadroomFastTools.cmake), files of a room, and
# of its tests, are compiled several at a time as one (compile_together.py says which): what they all
# include and instantiate is compiled once, which is two fifths of the time.
include(GoogleTest)
if(HEADROOM_PRECOMPILED)
  find_package(Python3 QUIET COMPONENTS Interpreter)
endif()

if(HEADROOM_TESTS)
  add_library(headroom_room_test_main STATIC ${PROJECT_SOURCE_DIR}/tests/tools/room_test_main.cpp)
  target_compile_definitions(headroom_room_test_main PRIVATE
    HEADROOM_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_compile_features(headroom_room_test_main PUBLIC cxx_std_20)
  target_include_directories(headroom_room_test_main PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(headroom_room_test_main PRIVATE headroom_warnings PUBLIC GTest::gtest)
endif()

# What a room's files are compiled with: it may end up in a shared library (src/api, src/runtime),
# which shows what it means to only.
function(headroom_room_properties target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES
    POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_link_libraries(${target} PRIVATE headroom_warnings)
endfunction()

# Of a test's file compiling takes longer than what its own code, which calls a room's, runs.
function(headroom_room_test_properties target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O0>)
  target_link_libraries(${target} PRIVATE headroom_warnings headroom_room_test_main)
endfunction()

# From the headers precompiled for all, and several files as one.
function(headroom_compile_together target precompiled)
  if(NOT HEADROOM_PRECOMPILED)
    return()
  endif()
  target_precompile_headers(${target} REUSE_FROM ${precompiled})
  get_target_property(kind ${target} TYPE)
  get_target_property(is_shared ${precompiled} POSITION_INDEPENDENT_CODE)
  if(kind STREQUAL "EXECUTABLE" AND is_shared)
    target_compile_options(${target} PRIVATE -fPIC)  # as the precompiled headers, and not -fPIE
  endif()
  list(LENGTH ARGN count)
  if(count GREATER 1 AND Python3_Interpreter_FOUND)
    execute_process(
      COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/cmake/compile_together.py ${ARGN}
      WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}
      OUTPUT_VARIABLE groups OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    foreach(source group IN ZIP_LISTS ARGN groups)
      set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
    endforeach()
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
    # Which is about headers, and here a source file is included.
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endif()
endfunction()

if(HEADROOM_PRECOMPILED)
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/precompiled.cpp "")
  add_library(headroom_precompiled OBJECT ${CMAKE_CURRENT_BINARY_DIR}/precompiled.cpp)
  headroom_room_properties(headroom_precompiled)
  target_precompile_headers(headroom_precompiled PRIVATE ${HEADROOM_PRECOMPILED})
  if(HEADROOM_TESTS)
    add_library(headroom_precompiled_test OBJECT ${CMAKE_CURRENT_BINARY_DIR}/precompiled.cpp)
    headroom_room_test_properties(headroom_precompiled_test)
    target_precompile_headers(headroom_precompiled_test PRIVATE ${HEADROOM_PRECOMPILED_TEST})
  endif()
endif()

function(headroom_room name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;DEPS;LIBS;TESTS;DATA_TESTS" ${ARGN})
  add_library(headroom_${name} STATIC ${ROOM_SOURCES})
  target_include_directories(headroom_${name} PUBLIC
    ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  headroom_room_properties(headroom_${name})
  target_link_libraries(headroom_${name} PRIVATE ${ROOM_LIBS})
  headroom_compile_together(headroom_${name} headroom_precompiled ${ROOM_SOURCES})
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
  headroom_room_test_properties(${target})
  target_link_libraries(${target} PRIVATE headroom_${room})
  headroom_compile_together(${target} headroom_precompiled_test ${sources})
  set(properties "")
  if(ARGN)
    set(properties PROPERTIES ${ARGN})
  endif()
  gtest_discover_tests(${target} TEST_PREFIX ${room}. DISCOVERY_TIMEOUT 60 ${properties})
endfunction()
