// How long the copy engine takes for a tensor load by the bytes of a row of its box, with rows that start at sectors of
// 32 bytes and rows that do not. One JSON object a line on stdout; cycles are the multiprocessor's clock.
//
//   nvcc -std=c++20 -O2 -gencode=arch=compute_90a,code=sm_90a rows.cu -o rows -lcuda && ./rows > rows.jsonl
//
// Every CTA loads boxes of 128 rows, four under way; the box's own bytes are the same lines again and again, so that
// they lie in the L2. "one": a single CTA; "all": one on each multiprocessor. `planes`: boxes of three dimensions, so
// many pieces of each of 128 rows one after the other in shared memory, as tensor cores read operands without a
// swizzle.
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "micro.cuh"

namespace {

constexpr int kRows = 128, kSlots = 4;

__device__ __forceinline__ void load(unsigned to, const CUtensorMap* map, int row, unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {0, %2}], [%3];" ::"r"(
          to),
      "l"(map), "r"(row), "r"(barrier)
      : "memory");
}

__device__ __forceinline__ void load_planes(unsigned to, const CUtensorMap* map, int row, unsigned barrier,
                                            unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {0, %2, 0}], [%3];" ::"r"(
          to),
      "l"(map), "r"(row), "r"(barrier)
      : "memory");
}

__global__ void loads(const __grid_constant__ CUtensorMap map, long long* out, int row_bytes, int planes, int count) {
  extern __shared__ __align__(1024) unsigned char memory[];
  __shared__ __align__(8) unsigned long long barriers[kSlots];
  const unsigned bytes = static_cast<unsigned>(row_bytes * planes) * kRows;
  for (int i = 0; i < kSlots; ++i)
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(smem_of(&barriers[i])) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  long long begin = 0;
  for (int i = 0; i < count + kSlots; ++i) {
    const unsigned barrier = smem_of(&barriers[i % kSlots]);
    if (i >= kSlots) wait(barrier, (i / kSlots - 1) & 1);
    if (i == 2 * kSlots) begin = clock64();  // the lines are in the L2
    const unsigned to = smem_of(memory) + static_cast<unsigned>(i % kSlots) * 128 * kRows;
    if (i < count && planes == 1) load(to, &map, i % 2 * kRows, barrier, bytes);
    if (i < count && planes > 1) load_planes(to, &map, i % 2 * kRows, barrier, bytes);
  }
  if (blockIdx.x == 0) out[0] = clock64() - begin;
}

}  // namespace

int main() {
  cudaDeviceProp device{};
  CHECK(cudaGetDeviceProperties(&device, 0));
  constexpr std::size_t kPitch = 1024;
  void* memory = nullptr;
  long long* out = nullptr;
  CHECK(cudaMalloc(&memory, 2 * kRows * kPitch + 256));
  CHECK(cudaMemset(memory, 0, 2 * kRows * kPitch + 256));
  CHECK(cudaMallocManaged(&out, sizeof(long long)));
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
  CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found));
  const auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry);
  constexpr int kSmem = kSlots * 128 * kRows;
  CHECK(cudaFuncSetAttribute(loads, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmem));
  for (const int row_bytes : {16, 32, 64, 128})
    for (const int pitch : {128, 144, 160, 1024})
      for (const bool is_all : {false, true}) {
        if (row_bytes > pitch) continue;
        CUtensorMap map{};
        const cuuint64_t dims[] = {static_cast<cuuint64_t>(row_bytes), 2 * kRows};
        const cuuint64_t strides[] = {static_cast<cuuint64_t>(pitch)};
        const cuuint32_t box[] = {static_cast<cuuint32_t>(row_bytes), kRows}, steps[] = {1, 1};
        CHECK(encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, memory, dims, strides, box, steps,
                     CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                     CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
        constexpr int kCount = 1024;
        loads<<<is_all ? device.multiProcessorCount : 1, 1, kSmem>>>(map, out, row_bytes, 1, kCount);
        CHECK(cudaDeviceSynchronize());
        const double cycles = static_cast<double>(out[0]) / (kCount - kSlots);
        printf(
            "{\"what\": \"rows of a tensor load\", \"row_bytes\": %d, \"pitch\": %d, \"sms\": \"%s\", "
            "\"cycles_of_row\": "
            "%.3f, \"bytes_per_clock\": %.1f}\n",
            row_bytes, pitch, is_all ? "all" : "one", cycles / kRows, row_bytes * kRows / cycles);
      }
  for (const int row_bytes : {16, 32, 64})
    for (const bool is_all : {false, true}) {
      const int planes = 128 / row_bytes;
      CUtensorMap map{};
      const cuuint64_t dims[] = {static_cast<cuuint64_t>(row_bytes), 2 * kRows, static_cast<cuuint64_t>(planes)};
      const cuuint64_t strides[] = {1024, static_cast<cuuint64_t>(row_bytes)};
      const cuuint32_t box[] = {static_cast<cuuint32_t>(row_bytes), kRows, static_cast<cuuint32_t>(planes)};
      const cuuint32_t steps[] = {1, 1, 1};
      CHECK(encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 3, memory, dims, strides, box, steps,
                   CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
      constexpr int kCount = 1024;
      loads<<<is_all ? device.multiProcessorCount : 1, 1, kSmem>>>(map, out, row_bytes, planes, kCount);
      CHECK(cudaDeviceSynchronize());
      const double cycles = static_cast<double>(out[0]) / (kCount - kSlots);
      printf(
          "{\"what\": \"rows of planes\", \"row_bytes\": %d, \"planes\": %d, \"sms\": \"%s\", \"cycles_of_row\": %.3f, "
          "\"bytes_per_clock\": %.1f}\n",
          row_bytes, planes, is_all ? "all" : "one", cycles / kRows / planes, row_bytes * planes * kRows / cycles);
    }
  // Swizzled rows of 128 bytes, as products have them.
  for (const bool is_all : {false, true}) {
    CUtensorMap map{};
    const cuuint64_t dims[] = {128, 2 * kRows}, strides[] = {1024};
    const cuuint32_t box[] = {128, kRows}, steps[] = {1, 1};
    CHECK(encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, memory, dims, strides, box, steps,
                 CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                 CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
    constexpr int kCount = 1024;
    loads<<<is_all ? device.multiProcessorCount : 1, 1, kSmem>>>(map, out, 128, 1, kCount);
    CHECK(cudaDeviceSynchronize());
    const double cycles = static_cast<double>(out[0]) / (kCount - kSlots);
    printf(
        "{\"what\": \"swizzled rows\", \"row_bytes\": 128, \"sms\": \"%s\", \"cycles_of_row\": %.3f, "
        "\"bytes_per_clock\": %.1f}\n",
        is_all ? "all" : "one", cycles / kRows, 128 * kRows / cycles);
  }
}
