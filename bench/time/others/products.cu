// Products that are a function of three pointers and three sizes: -DSOURCE='"file"' -DFUNCTION=name -DTYPE=half.
#include <cuda_runtime.h>

#include <cassert>
#include <cmath>
#include <cstdint>
#include <iostream>

#include "launches.cuh"

#define main main_of_theirs
#include SOURCE
#undef main
#define TEXT_OF(x) #x
#define NAME_OF(x) TEXT_OF(x)

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  launches::repeat = atoi(argv[1]);
  const int m = launches::argument(argc, argv, 0, 0), n = launches::argument(argc, argv, 1, 0),
            k = launches::argument(argc, argv, 2, 0);
  TYPE *a = launches::numbers<TYPE>(long{m} * k, 1), *b = launches::numbers<TYPE>(long{n} * k, 2),
       *c = launches::zeros<TYPE>(long{m} * n);
#ifdef TILE  // a kernel alone
  return launches::time(NAME_OF(FUNCTION), argc, argv,
                        [&] { FUNCTION<<<dim3(n / TILE, m / TILE), dim3(THREADS, THREADS)>>>(a, b, c, m, n, k); });
#else
  return launches::time(NAME_OF(FUNCTION), argc, argv, [&] { FUNCTION(a, b, c, m, n, k); });
#endif
}
