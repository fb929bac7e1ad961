#error a header of tessera includes <nlohmann/json.hpp>
