#include "runtime/worker_pool.h"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

namespace tessera {

TEST_CASE("every job runs once, whatever the number of workers") {
  for (const int workers : {-1, 0, 1, 2, 7, 64}) {
    std::vector<std::atomic<int>> runs(1000);
    CHECK(for_each_index(runs.size(), workers, [&](std::size_t i) { ++runs[i]; }) == runs.size());
    for (const auto& count : runs) CHECK(count == 1);
  }
  CHECK(for_each_index(0, 4, [](std::size_t) { FAIL("a job of none"); }) == 0);
}

TEST_CASE("jobs run at the same time, on the caller's thread too") {
  std::atomic<int> waiting{0};
  std::atomic<bool> is_caller_used{false};
  const auto caller = std::this_thread::get_id();
  for_each_index(3, 3, [&](std::size_t) {
    if (std::this_thread::get_id() == caller) is_caller_used = true;
    ++waiting;
    while (waiting < 3) std::this_thread::yield();  // ends only when all three are here
  });
  CHECK(is_caller_used);
}

TEST_CASE("a stop request keeps further jobs from starting") {
  std::stop_source stop;
  std::atomic<std::size_t> started{0};
  const std::size_t done = for_each_index(
      1'000'000, 4,
      [&](std::size_t i) {
        ++started;
        if (i == 100) stop.request_stop();
      },
      stop.get_token());
  CHECK(done == started);
  CHECK(done >= 101);
  CHECK(done < 1'000'000);
  CHECK(for_each_index(
            5, 4, [](std::size_t) { FAIL("started"); }, stop.get_token()) == 0);
}

TEST_CASE("the exception of the lowest index is rethrown, after all jobs have ended") {
  std::atomic<int> running{0}, arrived{0};
  try {
    for_each_index(100, 4, [&](std::size_t i) {
      ++running;
      if (i < 4) {
        ++arrived;
        while (arrived < 4) std::this_thread::yield();
        if (i != 0) std::this_thread::sleep_for(std::chrono::milliseconds(i == 1 ? 50 : 1));
      }
      --running;
      if (i < 4 && i != 0) throw std::runtime_error(std::to_string(i));
    });
    FAIL("no exception");
  } catch (const std::runtime_error& error) {
    CHECK(std::string(error.what()) == "1");
  }
  CHECK(running == 0);
}

TEST_CASE("the number of compiles follows threads and memory") {
  constexpr std::size_t kGiB = std::size_t{1} << 30;
  CHECK(num_workers_for(16, 128 * kGiB) == 16);
  CHECK(num_workers_for(16, 2 * kGiB) == 4);
  CHECK(num_workers_for(16, 1) == 1);
  CHECK(num_workers_for(0, 0) == 1);
  CHECK(num_workers_for(8, 0) == 8);
  CHECK(default_num_workers() >= 1);
}

}  // namespace tessera
