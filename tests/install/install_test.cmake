# cmake -D BUILD=... -D SOURCE=... -D CXX=... [-D SANITIZE=...] -P install_test.cmake
set(prefix ${BUILD}/tests/install/prefix)
set(example ${BUILD}/tests/install/example)
set(emulate ${BUILD}/tests/install/emulate)
file(REMOVE_RECURSE ${prefix} ${example} ${emulate})

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  message("$ ${ARGN}\n${output}")
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "exit code ${status}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(STRINGS ${SOURCE}/examples/attention/attention.cpp lines)
list(LENGTH lines num_lines)
if(num_lines GREATER_EQUAL 60)
  message(FATAL_ERROR "examples/attention/attention.cpp has ${num_lines} lines; the promise is under 60")
endif()

set(flags "")
if(SANITIZE)
  set(flags -DCMAKE_CXX_FLAGS=-fsanitize=${SANITIZE})
endif()
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix} --strip)
run(${CMAKE_COMMAND} -S ${SOURCE}/examples/attention -B ${example} -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_CXX_COMPILER=${CXX}
    -DCMAKE_BUILD_TYPE=Release ${flags})
run(${CMAKE_COMMAND} --build ${example})
run(${prefix}/bin/tessera plan copy2d --json)

# The emulator alone: no driver, no compiler.
file(STRINGS ${SOURCE}/examples/emulate/main.cpp lines)
list(LENGTH lines num_lines)
if(num_lines GREATER_EQUAL 40)
  message(FATAL_ERROR "examples/emulate/main.cpp has ${num_lines} lines; the promise is under 40")
endif()
run(${CMAKE_COMMAND} -S ${SOURCE}/examples/emulate -B ${emulate} -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_CXX_COMPILER=${CXX}
    -DCMAKE_BUILD_TYPE=Release ${flags})
run(${CMAKE_COMMAND} --build ${emulate})
run(${emulate}/emulate ${SOURCE}/examples/emulate/scale.ptx)
if(NOT output STREQUAL "2000 of 2000 outputs are 3\n")
  message(FATAL_ERROR "the emulator's example gave a finding or a wrong output")
endif()
run(${prefix}/bin/tessera emulate ${SOURCE}/examples/emulate/scale.ptx --launch ${SOURCE}/examples/emulate/scale.json)

# Without a compiler on this machine the example says so and fails: that much is then checked.
set(ENV{ASAN_OPTIONS} detect_leaks=0)  # NVRTC itself leaks
set(ENV{TESSERA_CACHE_DIR} ${BUILD}/tests/install/cache)
execute_process(COMMAND ${example}/attention RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
message("$ attention\n${output}")
if(NOT status EQUAL 0 AND NOT output MATCHES "there is no compiler")
  message(FATAL_ERROR "exit code ${status}")
endif()
if(status EQUAL 0 AND NOT output MATCHES "not run: |4096000 of 4096000 outputs are 1")
  message(FATAL_ERROR "the example neither ran nor said why not")
endif()
