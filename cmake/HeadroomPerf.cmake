# headroom_perf(NAME SOURCES a_perf.cpp ... DEPS room ... [LIBS target ...])
#
# One Google Benchmark program under perf/; perf/run.py builds and runs them all. Speed is measured
# here and is never a pass or fail of a unit test.
if(HEADROOM_PERF)
  find_package(benchmark REQUIRED)
  find_package(Threads REQUIRED)
endif()
add_custom_target(headroom_perf_targets)

function(headroom_perf name)
  cmake_parse_arguments(PERF "" "" "SOURCES;DEPS;LIBS" ${ARGN})
  if(NOT HEADROOM_PERF)
    return()
  endif()
  add_executable(headroom_perf_${name} ${PERF_SOURCES})
  list(TRANSFORM PERF_DEPS PREPEND headroom_)
  target_link_libraries(headroom_perf_${name} PRIVATE
    ${PERF_DEPS} ${PERF_LIBS} headroom_warnings benchmark::benchmark_main Threads::Threads)
  target_compile_definitions(headroom_perf_${name} PRIVATE
    HEADROOM_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  set_target_properties(headroom_perf_${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/perf)
  add_dependencies(headroom_perf_targets headroom_perf_${name})
endfunction()
