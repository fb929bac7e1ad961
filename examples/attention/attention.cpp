// Attention through the installed library: compiles (or finds) the kernel, launches it on device memory, reads one
// value back. Where there is no GPU it stops after the compile and says so.
#include <tessera/cuda_device.h>
#include <tessera/jit.h>

#include <cstdio>
#include <vector>

int main() try {
  tessera::Jit jit{tessera::JitOptions::from_environment()};
  const auto kernel = jit.kernel(tessera::Fmha{.head_dim = 128, .mask = tessera::Mask::causal});
  std::printf("%s: %zu bytes of cubin\n", kernel.kernel().plan().kernel.c_str(),
              kernel.kernel().entry().image.cubin.size());

  if (const std::string reason = tessera::cuda_unavailable_reason(); !reason.empty()) {
    std::printf("not run: %s\n", reason.c_str());
    return 0;
  }
  const auto device = tessera::make_cuda_device();
  constexpr std::int64_t kBatch = 2, kHeads = 16, kSeqlen = 1000, kHeadDim = 128;
  constexpr std::size_t kCount = kBatch * kSeqlen * kHeads * kHeadDim;
  const std::vector<std::uint16_t> ones(kCount, 0x3F80);  // 1.0 in bf16
  const std::size_t bytes = kCount * sizeof(std::uint16_t);

  tessera::DevicePointer q = device->allocate(bytes), k = device->allocate(bytes), v = device->allocate(bytes),
                         o = device->allocate(bytes);
  for (const tessera::DevicePointer pointer : {q, k, v}) device->copy_to_device(pointer, ones.data(), bytes);
  device->set_bytes(o, 0xFF, bytes);

  const tessera::Stream stream = device->create_stream();
  kernel.launch(*device, stream,
                {.q = q,
                 .k = k,
                 .v = v,
                 .o = o,
                 .batch = kBatch,
                 .heads_q = kHeads,
                 .heads_kv = kHeads,
                 .seqlen_q = kSeqlen,
                 .seqlen_k = kSeqlen});
  device->synchronize(stream);

  std::vector<std::uint16_t> result(kCount);
  device->copy_to_host(result.data(), o, bytes);
  for (const tessera::DevicePointer pointer : {q, k, v, o}) device->free(pointer);
  device->destroy(stream);

  std::size_t wrong = 0;
  for (const std::uint16_t value : result) wrong += value != 0x3F80;  // an average of ones is one
  std::printf("%zu of %zu outputs are 1\n", kCount - wrong, kCount);
  return wrong == 0 ? 0 : 1;
} catch (const tessera::Error& error) {
  std::fprintf(stderr, "attention: %s\n", error.what());
  return 1;
}
