// Kernels that read rows of memory: -DSOURCE='"file"', -DFORM of
//   0: attention of gau-nernst/learn-cuda (FUNCTION)   1: its softmax   2: its sums   3: its gemv   4, 5, 6: reductions
#include <cuda_runtime.h>

#include <cstdint>
#include <iostream>

#include "launches.cuh"

#define main main_of_theirs
#include SOURCE
#undef main
#undef N
#define TEXT_OF(x) #x
#define NAME_OF(x) TEXT_OF(x)

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  launches::repeat = atoi(argv[1]);
  const int x = launches::argument(argc, argv, 0, 4096), y = launches::argument(argc, argv, 1, 4096);
#if FORM == 0  // batches times heads, keys; head_dim 128
  const long count = long{x} * y * 128;
  nv_bfloat16 *q = launches::numbers<nv_bfloat16>(count, 1), *k = launches::numbers<nv_bfloat16>(count, 2),
              *v = launches::numbers<nv_bfloat16>(count, 3), *o = launches::zeros<nv_bfloat16>(count);
  return launches::time(NAME_OF(FUNCTION), argc, argv, [&] { FUNCTION(q, k, v, o, x, y, y, 128); });
#elif FORM == 1  // rows, columns
  float *in = launches::numbers<float>(long{x} * y, 1), *out = launches::zeros<float>(long{x} * y),
        *more = launches::zeros<float>(4L * x * y / 256);
  return launches::time(NAME_OF(FUNCTION), argc, argv, [&] { FUNCTION(in, out, more, x, y); });
#elif FORM == 2
  float *in = launches::numbers<float>(long{x} * y, 1), *out = launches::zeros<float>(x);
  return launches::time(NAME_OF(FUNCTION), argc, argv, [&] { FUNCTION(in, out, x, y, 4096, 256); });
#elif FORM == 3  // rows of the matrix, their length
  nv_bfloat16 *a = launches::numbers<nv_bfloat16>(y, 1), *b = launches::numbers<nv_bfloat16>(long{x} * y, 2),
              *c = launches::zeros<nv_bfloat16>(x);
  return launches::time(NAME_OF(FUNCTION), argc, argv, [&] { FUNCTION(a, b, c, x, y); });
#else            // thousands of numbers
  const int count = x * 1024;
  float *in = launches::numbers<float>(count, 1), *out = launches::zeros<float>(count / 256 + 1);
#if FORM == 5
  return launches::time(NAME_OF(FUNCTION), argc, argv, [&] { FUNCTION<<<GetNumBlocks(count), 256>>>(in, out, count); });
#else  // threads that add two numbers first: FORM 6
  return launches::time(NAME_OF(FUNCTION), argc, argv,
                        [&] { FUNCTION<<<count / (FORM == 6 ? 512 : 256), 256>>>(in, out); });
#endif
#endif
}
