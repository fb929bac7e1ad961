#include "runtime/own_stack.h"

#include <pthread.h>

#include "base/quiet_thread.h"

namespace tessera {

namespace {

extern "C" void* call_body(void* body) {
  (*static_cast<const std::function<void()>*>(body))();
  return nullptr;
}

bool start(pthread_t& thread, const std::function<void()>& body) {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  std::size_t bytes = 0;
  const bool is_small = pthread_attr_getstacksize(&attributes, &bytes) != 0 || bytes < kCompileStackBytes;
  bool is_started = !is_small || pthread_attr_setstacksize(&attributes, kCompileStackBytes) == 0;
  if (is_started) {
    const SignalsBlocked blocked;
    is_started = pthread_create(&thread, &attributes, call_body, const_cast<std::function<void()>*>(&body)) == 0;
  }
  pthread_attr_destroy(&attributes);
  return is_started;
}

}  // namespace

void with_own_stack(const std::function<void()>& body) {
  pthread_t thread{};
  if (start(thread, body)) {
    pthread_join(thread, nullptr);
  } else {
    body();
  }
}

}  // namespace tessera
