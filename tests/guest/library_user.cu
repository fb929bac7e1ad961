// Uses library.cu's library: linked with it, or opened from the path of the argument, twice, or in a namespace of its
// own ("apart PATH").
#include <dlfcn.h>

#include <cstdio>
#include <cstring>

using Answer = int (*)(int* managed);
#ifdef IS_LINKED
extern "C" int library_answer(int* managed);
#endif

static int judge(Answer answer) {
  int managed = 0;
  const int sum = answer(&managed);
  std::printf("the library answers %d and %d: %s\n", sum, managed, sum == 325 && managed == 135 ? "right" : "wrong");
  std::fflush(stdout);
  return sum == 325 && managed == 135 ? 0 : 1;
}

int main([[maybe_unused]] int count, [[maybe_unused]] char** arguments) {
#ifdef IS_LINKED
  return judge(library_answer);
#else
  const bool is_apart = std::strcmp(arguments[1], "apart") == 0;
  int wrong = 0;
  for (int time = 0; time < 2; ++time) {
    void* const library = is_apart ? dlmopen(LM_ID_NEWLM, arguments[2], RTLD_NOW) : dlopen(arguments[1], RTLD_LAZY);
    if (library == nullptr) {
      std::printf("%s\n", dlerror());
      return 2;
    }
    wrong += judge(reinterpret_cast<Answer>(dlsym(library, "library_answer")));
    if (!is_apart && dlclose(library) != 0) return 2;
  }
  return wrong == 0 ? 0 : 1;
#endif
}
