# Installs the library's component of BUILD into an empty prefix and builds CONSUMER against it, by
# find_package and by pkg-config. Only public headers and the package may be needed for that.
set(work ${BUILD}/tests/install)
set(prefix ${work}/prefix)
file(REMOVE_RECURSE ${work})

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE err)
  if(NOT code EQUAL 0)
    list(JOIN ARGN " " words)
    message(FATAL_ERROR "failed (${code}): ${words}\n${out}${err}")
  endif()
  set(output "${out}" PARENT_SCOPE)
endfunction()

function(expect_version program)
  run(${program})
  string(STRIP "${output}" said)
  if(NOT said STREQUAL VERSION)
    message(FATAL_ERROR "${program} says '${said}', not '${VERSION}'")
  endif()
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix} --component headroom_dev)
run(${CMAKE_COMMAND} -S ${CONSUMER} -B ${work}/build -G ${GENERATOR}
  -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_PREFIX_PATH=${prefix})
run(${CMAKE_COMMAND} --build ${work}/build)
expect_version(${work}/build/consumer)

find_program(pkg_config NAMES pkg-config pkgconf)
if(NOT pkg_config)
  message(STATUS "pkg-config is not installed: headroom.pc not tried")
  return()
endif()
file(GLOB_RECURSE pc ${prefix}/headroom.pc)
cmake_path(GET pc PARENT_PATH pc_dir)
set(ENV{PKG_CONFIG_PATH} ${pc_dir})
run(${pkg_config} --cflags --libs headroom)
separate_arguments(flags UNIX_COMMAND "${output}")
cmake_path(GET pc_dir PARENT_PATH lib_dir)
run(${CXX} -std=c++20 ${CONSUMER}/consumer.cpp -o ${work}/consumer_pc ${flags}
  -Wl,-rpath,${lib_dir})
expect_version(${work}/consumer_pc)
