#include "runtime/remote/http_store.h"

#include <fmt/format.h>

#include "tessera/error.h"

#ifdef TESSERA_HAS_CURL

#include <curl/curl.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <random>
#include <thread>

namespace tessera::remote {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kAttempts = 3;
constexpr milliseconds kLongestConnect{2'000};
constexpr milliseconds kFirstPause{100};

/// A hundredth of a second at a time, so that a stop does not wait.
bool pause_unless_stopped(milliseconds time, const Bounds& bounds) {
  const Clock::time_point until = std::min(Clock::now() + time, bounds.until);
  while (Clock::now() < until) {
    if (bounds.is_stopped && bounds.is_stopped()) return false;
    std::this_thread::sleep_for(std::min<Clock::duration>(milliseconds{10}, until - Clock::now()));
  }
  return true;
}

/// So that machines which met the same fault do not come back together.
milliseconds pause_before(int attempt) {
  thread_local std::minstd_rand random{std::random_device{}()};
  const auto longest = kFirstPause.count() << (attempt - 1);
  return milliseconds{std::uniform_int_distribution<std::int64_t>(longest / 2, longest)(random)};
}

struct Request {
  std::string_view method;
  std::string_view sent{};
  std::size_t sent_so_far = 0;
  std::string received{};
  std::int64_t max_bytes = 0;
  bool is_too_large = false, is_stopped = false;
  const Bounds* bounds = nullptr;
};

std::size_t take(char* data, std::size_t size, std::size_t count, void* to) {
  auto& request = *static_cast<Request*>(to);
  const std::size_t bytes = size * count;
  if (static_cast<std::int64_t>(request.received.size() + bytes) > request.max_bytes) {
    request.is_too_large = true;
    return 0;
  }
  request.received.append(data, bytes);
  return bytes;
}

std::size_t give(char* data, std::size_t size, std::size_t count, void* from) {
  auto& request = *static_cast<Request*>(from);
  const std::size_t bytes = std::min(size * count, request.sent.size() - request.sent_so_far);
  std::memcpy(data, request.sent.data() + request.sent_so_far, bytes);
  request.sent_so_far += bytes;
  return bytes;
}

int look_for_stop(void* of, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  auto& request = *static_cast<Request*>(of);
  request.is_stopped = request.bounds->is_stopped && request.bounds->is_stopped();
  return request.is_stopped ? 1 : 0;
}

class HttpStore : public Store {
 public:
  HttpStore(std::string base, const std::vector<std::string>& headers, std::string ca_file)
      : base_(std::move(base)), ca_file_(std::move(ca_file)) {
    static std::once_flag once;
    std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
    headers_ = curl_slist_append(headers_, "Expect:");  // or a PUT waits a second for servers that don't know it
    headers_ = curl_slist_append(headers_, "Content-Type: application/octet-stream");
    for (const std::string& line : headers) headers_ = curl_slist_append(headers_, line.c_str());
  }
  ~HttpStore() override {
    for (CURL* handle : handles_) curl_easy_cleanup(handle);
    curl_slist_free_all(headers_);
  }

  Answer get(const std::string& name, const Bounds& bounds) override { return ask(name, "GET", {}, bounds); }
  Answer has(const std::string& name, const Bounds& bounds) override { return ask(name, "HEAD", {}, bounds); }
  Answer put(const std::string& name, std::string_view bytes, const Bounds& bounds) override {
    return ask(name, "PUT", bytes, bounds);
  }

 private:
  Answer ask(const std::string& name, std::string_view method, std::string_view sent, const Bounds& bounds) {
    for (int attempt = 1;; ++attempt) {
      Answer answer = ask_once(name, method, sent, bounds);
      if (answer.verdict != Verdict::failed || attempt == kAttempts || Clock::now() >= bounds.until) return answer;
      if (!pause_unless_stopped(pause_before(attempt), bounds)) return {.verdict = Verdict::stopped};
      if (Clock::now() >= bounds.until) return answer;
    }
  }

  Answer ask_once(const std::string& name, std::string_view method, std::string_view sent, const Bounds& bounds) {
    Request request{.method = method, .sent = sent, .max_bytes = bounds.max_bytes, .bounds = &bounds};
    CURL* const handle = borrow();
    if (handle == nullptr) return {.verdict = Verdict::failed, .reason = "libcurl gave no handle"};
    const auto left = std::chrono::duration_cast<milliseconds>(bounds.until - Clock::now());
    const long time = static_cast<long>(std::max(left, milliseconds{1}).count());
    const std::string url = base_ + "/" + name;
    curl_easy_reset(handle);
    curl_easy_setopt(handle, CURLOPT_URL, url.c_str());
    curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);  // the host's signals are its own
    curl_easy_setopt(handle, CURLOPT_TIMEOUT_MS, time);
    curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS, std::min(time, static_cast<long>(kLongestConnect.count())));
    curl_easy_setopt(handle, CURLOPT_FOLLOWLOCATION, 0L);  // credentials go nowhere else
    curl_easy_setopt(handle, CURLOPT_USERAGENT, "tessera");
    curl_easy_setopt(handle, CURLOPT_HTTPHEADER, headers_);
    curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(handle, CURLOPT_WRITEDATA, &request);
    curl_easy_setopt(handle, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(handle, CURLOPT_XFERINFOFUNCTION, look_for_stop);
    curl_easy_setopt(handle, CURLOPT_XFERINFODATA, &request);
    if (!ca_file_.empty()) curl_easy_setopt(handle, CURLOPT_CAINFO, ca_file_.c_str());
    if (method == "HEAD") curl_easy_setopt(handle, CURLOPT_NOBODY, 1L);
    if (method == "PUT") {
      curl_easy_setopt(handle, CURLOPT_UPLOAD, 1L);
      curl_easy_setopt(handle, CURLOPT_READFUNCTION, give);
      curl_easy_setopt(handle, CURLOPT_READDATA, &request);
      curl_easy_setopt(handle, CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(sent.size()));
      request.max_bytes = std::int64_t{1} << 20;  // what a server says of it
    }
    const CURLcode code = curl_easy_perform(handle);
    long status = 0;
    curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
    give_back(handle);
    return answer_of(code, status, std::move(request));
  }

  static Answer answer_of(CURLcode code, long status, Request&& request) {
    if (request.is_stopped) return {.verdict = Verdict::stopped};
    if (request.is_too_large)
      return {.verdict = Verdict::refused, .reason = fmt::format("an answer of more than {} bytes", request.max_bytes)};
    if (code != CURLE_OK) return {.verdict = Verdict::failed, .reason = curl_easy_strerror(code)};
    if (status == 200 || (request.method == "PUT" && (status == 201 || status == 204)))
      return {.verdict = Verdict::ok, .body = std::move(request.received)};
    if ((status == 404 || status == 410) && request.method != "PUT") return {.verdict = Verdict::absent};
    const std::string reason = fmt::format("{}: HTTP {}", request.method, status);
    const bool may_pass = status == 408 || status == 429 || (status >= 500 && status != 501 && status != 507);
    return {.verdict = may_pass ? Verdict::failed : Verdict::refused, .reason = reason};
  }

  CURL* borrow() {
    {
      const std::lock_guard lock(mutex_);
      if (!handles_.empty()) {
        CURL* const handle = handles_.back();
        handles_.pop_back();
        return handle;
      }
    }
    return curl_easy_init();
  }
  void give_back(CURL* handle) {
    const std::lock_guard lock(mutex_);
    handles_.push_back(handle);
  }

  const std::string base_, ca_file_;
  curl_slist* headers_ = nullptr;
  std::mutex mutex_;
  std::vector<CURL*> handles_;  // with their open connections
};

}  // namespace

std::unique_ptr<Store> make_http_store(const std::string& base, std::vector<std::string> headers,
                                       const std::string& ca_file) {
  return std::make_unique<HttpStore>(base, headers, ca_file);
}

}  // namespace tessera::remote

#else

namespace tessera::remote {

std::unique_ptr<Store> make_http_store(const std::string& base, std::vector<std::string>, const std::string&) {
  throw Error(ErrorKind::unsupported, fmt::format("remote cache {}: this tessera was built without libcurl", base));
}

}  // namespace tessera::remote

#endif
