// NVIDIA/cutlass on Hopper by its collective builders: -DELEMENT, -DROWS, -DCOLUMNS and -DDEPTH (of a tile), -DALONG_M
// and -DALONG_N (CTAs of a cluster), -DMAINLOOP, -DEPILOGUE (schedules), -DSCHEDULER (of tiles).
#include "cute/tensor.hpp"
#include "cutlass/cutlass.h"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/device/gemm_universal_adapter.h"
#include "cutlass/gemm/kernel/gemm_universal.hpp"
#include "cutlass/gemm/kernel/tile_scheduler.hpp"
#include "cutlass/util/packed_stride.hpp"
#include "launches.cuh"

using namespace cute;
using TileShape = Shape<Int<ROWS>, Int<COLUMNS>, Int<DEPTH>>;
using ClusterShape = Shape<Int<ALONG_M>, Int<ALONG_N>, _1>;
using OutType = cutlass::bfloat16_t;
constexpr int kAlign = 128 / cutlass::sizeof_bits<ELEMENT>::value;
using RowOrder = cutlass::layout::RowMajor;
using ColumnOrder = cutlass::layout::ColumnMajor;
using EpilogueOp =
    cutlass::epilogue::collective::CollectiveBuilder<cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileShape,
                                                     ClusterShape, cutlass::epilogue::collective::EpilogueTileAuto,
                                                     float, float, void, RowOrder, 8, OutType, RowOrder, 8,
                                                     EPILOGUE>::CollectiveOp;
using MainloopOp = cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, ELEMENT, RowOrder, kAlign, ELEMENT, ColumnOrder, kAlign, float,
    TileShape, ClusterShape,
    cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename EpilogueOp::SharedStorage))>,
    MAINLOOP>::CollectiveOp;
using ProductKernel =
    cutlass::gemm::kernel::GemmUniversal<Shape<int, int, int, int>, MainloopOp, EpilogueOp, SCHEDULER>;
using Launcher = cutlass::gemm::device::GemmUniversalAdapter<ProductKernel>;
#define TEXT_OF(...) #__VA_ARGS__
#define NAME_OF(...) TEXT_OF(__VA_ARGS__)

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  launches::repeat = atoi(argv[1]);
  const int m = launches::argument(argc, argv, 0, 0), n = launches::argument(argc, argv, 1, 0),
            k = launches::argument(argc, argv, 2, 0);
  ELEMENT *a = launches::numbers<ELEMENT>(long{m} * k, 1), *b = launches::numbers<ELEMENT>(long{n} * k, 2);
  OutType* d = launches::zeros<OutType>(long{m} * n);
  typename Launcher::Arguments arguments{
      cutlass::gemm::GemmUniversalMode::kGemm,
      {m, n, k, 1},
      {a, cutlass::make_cute_packed_stride(typename ProductKernel::StrideA{}, {m, k, 1}), b,
       cutlass::make_cute_packed_stride(typename ProductKernel::StrideB{}, {n, k, 1})},
      {{1.0f, 0.0f}, nullptr, {}, d, cutlass::make_cute_packed_stride(typename ProductKernel::StrideD{}, {m, n, 1})}};
  cudaDeviceProp properties;
  LAUNCHES_CHECK(cudaGetDeviceProperties(&properties, 0));
  arguments.hw_info.device_id = 0;
  arguments.hw_info.sm_count = properties.multiProcessorCount;
  Launcher device;
  char* workspace = launches::zeros<char>(Launcher::get_workspace_size(arguments) + 16);
  if (device.can_implement(arguments) != cutlass::Status::kSuccess ||
      device.initialize(arguments, workspace) != cutlass::Status::kSuccess) {
    std::printf("{\"failed\": \"not implemented\"}\n");
    return 1;
  }
  return launches::time("CUTLASS " NAME_OF(ELEMENT) " " NAME_OF(ROWS) "x" NAME_OF(COLUMNS) " " NAME_OF(MAINLOOP), argc,
                        argv, [&] { device.run(); });
}
