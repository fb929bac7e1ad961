#error a header of tessera includes <cuda.h>
