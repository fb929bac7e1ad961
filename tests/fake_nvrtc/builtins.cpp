// What the fake NVRTC looks for: a library that is found by its name or not at all.
extern "C" int fake_builtins_are_here() { return 1; }
