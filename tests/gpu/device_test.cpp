#include <doctest/doctest.h>

#include "tessera/error.h"
#include "tests/gpu/gpu_support.h"

namespace tessera {

using namespace gpu;

TEST_CASE("the device tells what it is") {
  const DeviceInfo& info = device().info();
  CHECK_FALSE(info.name.empty());
  CHECK(info.compute_major >= 7);
  CHECK(info.num_sms > 0);
  CHECK(info.l2_bytes > 0);
  CHECK(info.max_dynamic_smem_bytes >= 48 * 1024);
  CHECK(info.memory_bytes > 0);
  CHECK(info.driver_version >= 12040);
  CHECK_FALSE(info.is_emulated);
  CHECK(cuda_current_device() == info.ordinal);
  CHECK_THROWS_AS(make_cuda_device(cuda_device_count()), Error);
  MESSAGE(info.name << ", compute capability " << info.compute_major << "." << info.compute_minor << ", driver "
                    << info.driver_version);
}

TEST_CASE("memory: in, filled, out") {
  const Array<unsigned> array({1, 2, 3, 4});
  device().set_bytes(array.pointer() + 4, 0xff, 8);
  CHECK(array.host() == std::vector<unsigned>{1, ~0u, ~0u, 4});
  device().free(0);
  CHECK_THROWS_AS(device().allocate(std::size_t{1} << 60), Error);
}

TEST_CASE("events measure time on a stream") {
  const Stream stream = device().create_stream();
  const Array<std::byte> array(std::vector<std::byte>(1 << 24));
  const Event from = device().create_event(), to = device().create_event();
  device().record(from, stream);
  device().set_bytes(array.pointer(), 1, 1 << 24, stream);
  device().record(to, stream);
  CHECK(device().elapsed_ms(from, to) > 0);
  CHECK(device().synchronize(stream).empty());
  CHECK_FALSE(device().is_capturing(stream));
  device().destroy(from);
  device().destroy(to);
  device().destroy(stream);
}

TEST_CASE("code that is not there is refused by name") {
  Image image;
  CHECK_THROWS_AS(device().load(image), Error);
  image.cubin.resize(64);
  CHECK_THROWS_AS(device().load(image), Error);
  const auto loaded = device().load(compile("extern \"C\" __global__ void kernel() {}"));
  CHECK_NOTHROW(loaded->entry("kernel"));
  try {
    loaded->entry("kernels");
    FAIL("found");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::device);
    CHECK(std::string(error.what()) ==
          "cuModuleGetFunction failed: CUDA_ERROR_NOT_FOUND (500: named symbol not found): kernel 'kernels'");
  }
}

TEST_CASE("parameters of a kernel, a tensor map among them, are told by the driver") {
  const auto loaded = device().load(compile(
      "struct alignas(64) Map { char bytes[128]; };\n"
      "extern \"C\" __global__ void kernel(const __grid_constant__ Map map, int a, long long b, float c, void* d) {}"));
  const std::vector<ParameterLayout> layout = loaded->parameters(loaded->entry("kernel"));
  REQUIRE(layout.size() == 5);
  // The driver counts offsets from a start of its own; their differences are the kernel's.
  const std::size_t bytes[5] = {128, 4, 8, 4, 8}, offsets[5] = {0, 128, 136, 144, 152};
  for (std::size_t i = 0; i < 5; ++i) {
    CHECK(layout[i].bytes == bytes[i]);
    CHECK(layout[i].offset - layout[0].offset == offsets[i]);
  }
}

TEST_CASE("a refused tensor map names every argument") {
  ResolvedTensorMap map;
  map.rank = 2;
  map.address = 0x1000;
  map.dims = {64, 32};
  map.strides_bytes = {136};
  map.box = {64, 8};
  map.swizzle = TensorMapSwizzle::b128;
  TensorMapObject object;
  try {
    device().encode(map, object);
    FAIL("encoded");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::device);
    CHECK(std::string(error.what()) ==
          "cuTensorMapEncodeTiled failed: CUDA_ERROR_INVALID_VALUE (1: invalid argument): type bf16, rank 2, address "
          "0x1000, dims [64, 32], strides_bytes [136], box [64, 8], element_strides [1, 1], interleave none, swizzle "
          "128B, l2_promotion none, fill zero");
  }
  map.strides_bytes = {128};
  CHECK_NOTHROW(device().encode(map, object));
}

TEST_CASE("a refused launch names its shape") {
  const auto loaded = device().load(compile("extern \"C\" __global__ void kernel() {}"));
  LaunchRequest request;
  request.entry = loaded->entry("kernel");
  request.block = {2048, 1, 1};
  try {
    device().launch(request, {});
    FAIL("launched");
  } catch (const Error& error) {
    CHECK(std::string(error.what())
              .find("cuLaunchKernelEx failed: CUDA_ERROR_INVALID_VALUE (1: invalid argument): grid "
                    "1x1x1, block 2048x1x1, cluster 1x1x1, 0 bytes of dynamic shared memory") == 0);
  }
}

TEST_CASE("clusters, also larger than the portable 8, and large shared memory reach the kernel") {
  if (device().info().compute_major < 9) return;
  const auto loaded =
      device().load(compile("extern \"C\" __global__ void kernel(unsigned* out) {\n"
                            "  extern __shared__ unsigned smem[];\n"
                            "  unsigned rank, count;\n"
                            "  asm(\"mov.u32 %0, %%cluster_ctarank;\" : \"=r\"(rank));\n"
                            "  asm(\"mov.u32 %0, %%cluster_nctarank;\" : \"=r\"(count));\n"
                            "  smem[25599] = rank * 100 + count;\n"
                            "  out[blockIdx.x] = smem[25599];\n"
                            "}"));
  const EntryHandle entry = loaded->entry("kernel");
  loaded->set_max_dynamic_smem(entry, 102400);
  for (const unsigned cluster : {1u, 2u, 8u, 16u}) {
    const Array<unsigned> out(std::vector<unsigned>(16, 7));
    DevicePointer pointer = out.pointer();
    void* parameters[1] = {&pointer};
    LaunchRequest request{entry, {16, 1, 1}, {1, 1, 1}, {cluster, 1, 1}, 102400, true, parameters};
    device().launch(request, {});
    const std::vector<unsigned> ranks = out.host();
    for (unsigned i = 0; i < 16; ++i) CHECK(ranks[i] == i % cluster * 100 + cluster);
  }
}

}  // namespace tessera
