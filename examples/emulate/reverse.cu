// Each block of 256 threads reverses its 256 numbers.
extern "C" __global__ void reverse(const float* in, float* out) {
  __shared__ float tile[256];
  const unsigned first = 256 * blockIdx.x, i = threadIdx.x;
  tile[i] = in[first + i];
  out[first + i] = tile[255 - i];  // a __syncthreads() is missing before this line
}
