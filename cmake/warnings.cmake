# tessera_target(NAME): our warnings, sanitizers and include root for a target of ours.
function(tessera_target name)
  target_compile_features(${name} PUBLIC cxx_std_20)
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                            $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/templates>)
  # A product and a sum are two roundings unless the code says fma, on every host: the compiler never fuses them.
  target_compile_options(${name} PRIVATE -ffp-contract=off)
  target_compile_options(${name} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion)
  if(TESSERA_WERROR)
    target_compile_options(${name} PRIVATE -Werror)
  endif()
  if(TESSERA_FUZZERS)
    target_compile_options(${name} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
  if(TESSERA_SANITIZE)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # g++ 13 sees overflows and unset values in what its own instrumentation inserts
      target_compile_options(${name} PRIVATE -Wno-array-bounds -Wno-stringop-overflow -Wno-maybe-uninitialized)
    endif()
    target_compile_options(${name} PRIVATE -fsanitize=${TESSERA_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(${name} PUBLIC $<BUILD_INTERFACE:-fsanitize=${TESSERA_SANITIZE}>)
  endif()
endfunction()

# tessera_public_headers(NAME): headers of this folder's include/ are for everybody, as "tessera/...", and are installed.
function(tessera_public_headers name)
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>
                                            $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  install(DIRECTORY include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endfunction()
