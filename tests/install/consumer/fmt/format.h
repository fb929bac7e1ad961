#error a header of tessera includes <fmt/format.h>
