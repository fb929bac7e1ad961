// Nothing: a target for the headers that the tests share (CMakeLists.txt).
