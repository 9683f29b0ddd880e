# headroom_fuzz(NAME SOURCE file.cpp DEPS room ...)
#
# One fuzz target: SOURCE defines LLVMFuzzerTestOneInput, DEPS are the rooms it drives, and
# fuzz/corpus/NAME holds its seeds, every input that once made trouble among them.
# With HEADROOM_FUZZ (the `fuzz` preset) it is a libFuzzer program; fuzz/run.sh runs it. Otherwise
# it is a plain program that replays the corpus once, as the ctest `fuzz.NAME.replay`: so the corpus
# guards every compiler and sanitizer we build with.
add_custom_target(headroom_fuzz_targets)
if(HEADROOM_TESTS AND NOT HEADROOM_FUZZ)
  add_library(headroom_fuzz_replay_main OBJECT ${PROJECT_SOURCE_DIR}/fuzz/replay_main.cpp)
  target_compile_features(headroom_fuzz_replay_main PRIVATE cxx_std_20)
  target_link_libraries(headroom_fuzz_replay_main PRIVATE headroom_warnings)
endif()

function(headroom_fuzz name)
  cmake_parse_arguments(FUZZ "" "SOURCE" "DEPS" ${ARGN})
  if(NOT HEADROOM_FUZZ AND NOT HEADROOM_TESTS)
    return()
  endif()
  set(corpus ${PROJECT_SOURCE_DIR}/fuzz/corpus/${name})
  if(NOT IS_DIRECTORY ${corpus})
    message(FATAL_ERROR "fuzz target ${name} has no corpus: put at least one seed into ${corpus}")
  endif()
  add_executable(headroom_fuzz_${name} ${FUZZ_SOURCE})
  list(TRANSFORM FUZZ_DEPS PREPEND headroom_)
  target_link_libraries(headroom_fuzz_${name} PRIVATE ${FUZZ_DEPS} headroom_warnings)
  add_dependencies(headroom_fuzz_targets headroom_fuzz_${name})
  if(HEADROOM_FUZZ)
    target_link_options(headroom_fuzz_${name} PRIVATE -fsanitize=fuzzer)
  else()
    target_link_libraries(headroom_fuzz_${name} PRIVATE headroom_fuzz_replay_main)
    headroom_room_properties(headroom_fuzz_${name})
    headroom_compile_together(headroom_fuzz_${name} headroom_precompiled ${FUZZ_SOURCE})
    add_test(NAME fuzz.${name}.replay COMMAND headroom_fuzz_${name} ${corpus})
    set_tests_properties(fuzz.${name}.replay PROPERTIES LABELS fuzz TIMEOUT 120)
  endif()
endfunction()
