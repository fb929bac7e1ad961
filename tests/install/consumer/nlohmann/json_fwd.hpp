#error a header of tessera includes <nlohmann/json_fwd.hpp>
