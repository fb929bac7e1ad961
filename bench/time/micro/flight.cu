// What the memory gives by how many bytes each multiprocessor has asked for: warps that load some pieces of 16 bytes a
// lane, wait for all of them, and load the next ones; with stores of as much, and of what lies in the L2. Pieces of a
// warp lie side by side, warps go through the whole one after the other.
#include <cstdio>

#include "micro.cuh"

namespace {

constexpr long kBig = 1L << 30;

template <int pieces, bool writes>
__global__ void __launch_bounds__(256) flight(const uint4* p, uint4* to, long count, long wraps) {
  const long step = static_cast<long>(gridDim.x) * blockDim.x * pieces;
  long i = (static_cast<long>(blockIdx.x) * blockDim.x + threadIdx.x / 32 * 32) * pieces + threadIdx.x % 32;
  for (long done = 0; done < count; done += step) {
    uint4 v[pieces];
#pragma unroll
    for (int k = 0; k < pieces; ++k) v[k] = p[i + k * 32];
    unsigned all = 0;
#pragma unroll
    for (int k = 0; k < pieces; ++k) all |= v[k].x | v[k].y | v[k].z | v[k].w;  // zeros
    if constexpr (writes) {
#pragma unroll
      for (int k = 0; k < pieces; ++k) to[i + k * 32] = v[k];
    }
    i += step + all;  // not before they are there
    if (i >= wraps) i -= wraps;
  }
  if (i == -1) to[0] = uint4{};
}

template <int pieces, bool writes>
void measure(const uint4* from, uint4* to, long mib, long of_mib) {
  for (const int warps : {4, 8, 16, 24, 32, 48, 64}) {
    const int threads = warps < 8 ? 32 * warps : 256, ctas = 132 * (warps < 8 ? 1 : warps / 8);
    const long bytes = static_cast<long>(warps) * 32 * 16 * pieces;
    int fit = 0;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&fit, flight<pieces, writes>, threads, 0));
    if (fit * 132 < ctas || bytes > 300 * 1024) continue;
    const long step = static_cast<long>(ctas) * threads * pieces;
    const long count = (mib << 16) / step * step, wraps = (of_mib << 16) / step * step;
    const double us =
        median_us(5, mib == of_mib, [&] { flight<pieces, writes><<<ctas, threads>>>(from, to, count, wraps); });
    printf(
        "{\"what\": \"flight\", \"writes\": %d, \"warps\": %d, \"pieces\": %d, \"bytes_of_sm\": %ld, \"mib\": %ld, "
        "\"of_mib\": %ld, "
        "\"us\": %.2f, \"terabytes_per_second\": %.3f}\n",
        writes, warps, pieces, bytes, mib, of_mib, us, static_cast<double>(count) * 16 * (writes ? 2 : 1) / us / 1e6);
  }
  fflush(stdout);
}

template <bool writes>
void measure_all(const uint4* p, uint4* q, long mib, long of_mib) {
  measure<1, writes>(p, q, mib, of_mib);
  measure<2, writes>(p, q, mib, of_mib);
  measure<4, writes>(p, q, mib, of_mib);
  measure<8, writes>(p, q, mib, of_mib);
}

}  // namespace

int main() {
  const uint4* const p = cleared(kBig);
  uint4* const q = cleared(kBig);
  measure_all<false>(p, q, 1024, 1024);
  measure_all<true>(p, q, 512, 512);
  measure_all<false>(p, q, 32, 32);
  measure_all<false>(p, q, 1024, 16);
  return 0;
}
