// deepseek-ai/DeepGEMM's e4m3 product with scales by blocks on Hopper, one instance: -DFULL_N, -DFULL_K, -DROWS,
// -DCOLUMNS, -DCLUSTER_CTAS (CTAs that share a tile by multicast, of A with -DON_A=true), -DSLOTS, -DBYTES (bytes),
// -DSWIZZLE, -DTHREADS (threads).
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <deep_gemm/impls/sm90_fp8_gemm_1d2d.cuh>

#include "launches.cuh"

using namespace deep_gemm;

static CUtensorMap tensor_map(CUtensorMapDataType type, int bytes, void* p, long inner, long outer, int box_inner,
                              int box_outer, int swizzle) {
  static const auto encode = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result;
    LAUNCHES_CHECK(
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result));
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
  }();
  CUtensorMap map;
  const cuuint64_t extents[2] = {static_cast<cuuint64_t>(inner), static_cast<cuuint64_t>(outer)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(inner * bytes)};
  const cuuint32_t box[2] = {static_cast<cuuint32_t>(box_inner), static_cast<cuuint32_t>(box_outer)}, steps[2] = {1, 1};
  const CUtensorMapSwizzle kinds[] = {CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_SWIZZLE_32B, CU_TENSOR_MAP_SWIZZLE_64B,
                                      CU_TENSOR_MAP_SWIZZLE_128B};
  const int kind = swizzle == 128 ? 3 : swizzle == 64 ? 2 : swizzle == 32 ? 1 : 0;
  if (encode(&map, type, 2, p, extents, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, kinds[kind],
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS) {
    std::printf("{\"failed\": \"tensor map\"}\n");
    std::exit(1);
  }
  return map;
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  launches::repeat = atoi(argv[1]);
  const int m = launches::argument(argc, argv, 0, 0), rows = (m + 3) / 4 * 4;
  constexpr int n = FULL_N, k = FULL_K;
  auto* a = launches::numbers<__nv_fp8_e4m3>(long{m} * k, 1);
  auto* b = launches::numbers<__nv_fp8_e4m3>(long{n} * k, 2);
  auto* sfa = launches::numbers<float>(long{rows} * (k / 128), 3);
  auto* sfb = launches::numbers<float>(long{(n + 127) / 128} * (k / 128), 4);
  auto* d = launches::zeros<__nv_bfloat16>(long{m} * n);
  auto* kernel = &sm90_fp8_gemm_1d2d_impl<cute::UMMA::Major::K, 0, n, k, 1, ROWS, COLUMNS, 128, 128, 128, SWIZZLE,
                                          SLOTS, 128, THREADS, CLUSTER_CTAS, ON_A, 132, GemmType::Normal,
                                          cutlass::bfloat16_t, epilogue::transform::EpilogueIdentity>;
  LAUNCHES_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
  const CUtensorMap map_a = tensor_map(CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, a, k, m, 128, ROWS, 128),
                    map_b = tensor_map(CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, b, k, n, 128, COLUMNS, 128),
                    map_d = tensor_map(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, d, n, m, SWIZZLE / 2, ROWS, SWIZZLE),
                    map_s = tensor_map(CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, sfa, rows, k / 128, ROWS, 1, 0);
  return launches::time("DeepGEMM", argc, argv, [&] {
    cudaLaunchConfig_t config{};
    config.gridDim = 132;
    config.blockDim = 128 + THREADS;
    config.dynamicSmemBytes = BYTES;
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = CLUSTER_CTAS;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
    int* layout = nullptr;
    LAUNCHES_CHECK(cudaLaunchKernelEx(&config, kernel, sfb, layout, static_cast<uint32_t>(m), static_cast<uint32_t>(n),
                                      static_cast<uint32_t>(k), map_a, map_b, map_d, map_s));
  });
}
