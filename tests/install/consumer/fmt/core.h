#error a header of tessera includes <fmt/core.h>
