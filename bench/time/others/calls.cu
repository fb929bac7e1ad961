// Kernels that a host function of theirs launches: -DSOURCE='"file"', -DCALL='function(arguments)' of x, y and z (the
// program's arguments) and of memory: a to g for x times y numbers and more, of TYPE, and zeros `i`. AND is a comma,
// at which nvcc would divide a definition.
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstdio>

#include "launches.cuh"

#define main main_of_theirs
#include SOURCE
#undef main
#ifndef TYPE
#define TYPE float
#endif
#define AND ,
#define TEXT_OF(...) #__VA_ARGS__
#define NAME_OF(...) TEXT_OF(__VA_ARGS__)

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  launches::repeat = atoi(argv[1]);
  const int x = launches::argument(argc, argv, 0, 1), y = launches::argument(argc, argv, 1, 1),
            z = launches::argument(argc, argv, 2, 1);
  const long count = std::max({long{x} * y, long{y} * z, long{x} * z});
  TYPE *a = launches::numbers<TYPE>(count, 1), *b = launches::numbers<TYPE>(count, 2),
       *c = launches::numbers<TYPE>(count, 3), *d = launches::numbers<TYPE>(count, 4),
       *e = launches::zeros<TYPE>(count), *f = launches::zeros<TYPE>(count), *g = launches::zeros<TYPE>(count);
  int* i = launches::zeros<int>(x);
  (void)a, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)i;
  return launches::time(NAME_OF(CALL), argc, argv, [&] { CALL; });
}
