# cmake -DROOT=... -DOUT=... -P embed_gpus.cmake: writes the descriptions of GPUs under ROOT (NAME.json) into a C++
# source, so that the time model carries them.
cmake_minimum_required(VERSION 3.22)

file(GLOB paths RELATIVE "${ROOT}" "${ROOT}/*.json")
list(SORT paths)
set(body "")
set(names "")
set(index 0)
foreach(path IN LISTS paths)
  file(READ "${ROOT}/${path}" text)
  string(APPEND body "constexpr char kText${index}[] =")
  string(LENGTH "${text}" left)
  while(left GREATER 0)
    string(SUBSTRING "${text}" 0 8000 chunk)
    string(APPEND body "\n    R\"__tessera(${chunk})__tessera\"")
    string(LENGTH "${chunk}" size)
    string(SUBSTRING "${text}" ${size} -1 text)
    string(LENGTH "${text}" left)
  endwhile()
  string(APPEND body ";\n")
  string(REPLACE ".json" "" name "${path}")
  string(APPEND names "    {\"${name}\", {kText${index}, sizeof(kText${index}) - 1}},\n")
  math(EXPR index "${index} + 1")
endforeach()
file(WRITE "${OUT}" "// Made by embed_gpus.cmake.
#include \"emulator/time/gpu_time.h\"

namespace tessera::emulator {
namespace {
${body}}  // namespace

std::vector<EmbeddedGpu> embedded_gpus() {
  return {
${names}  };
}

}  // namespace tessera::emulator
")
