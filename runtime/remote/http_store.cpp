#include "runtime/remote/http_store.h"

#include <fmt/format.h>

#include "tessera/error.h"

#ifdef TESSERA_HAS_CURL

#include <curl/curl.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "base/quiet_thread.h"
#include "runtime/remote/attempts.h"
#include "runtime/remote/idle.h"
#include "runtime/remote/quiet_pipe.h"

namespace tessera::remote {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLongestHttpConnect{2'000};
/// How long a stop request may wait.
constexpr int kGlanceMs = 20;
/// Of one call for many names. A server answers the requests of one connection one after the other.
constexpr std::size_t kConnections = 16;

struct FreeLines {
  void operator()(curl_slist* lines) const { curl_slist_free_all(lines); }
};
using Lines = std::unique_ptr<curl_slist, FreeLines>;

void add(Lines& lines, const std::string& line) {
  if (curl_slist* const longer = curl_slist_append(lines.get(), line.c_str())) {
    static_cast<void>(lines.release());
    lines.reset(longer);
  }
}

/// One request under way.
struct Transfer {
  std::string_view method, sent;
  const Bounds* bounds = nullptr;
  std::size_t index = 0;  ///< of the name, where there are many
  CURL* handle = nullptr;
  Lines headers{};
  std::size_t sent_so_far = 0;
  std::string received{};
  std::int64_t max_bytes = 0;
  bool is_too_large = false, is_stopped = false;
};

std::size_t take(char* data, std::size_t size, std::size_t count, void* to) {
  auto& transfer = *static_cast<Transfer*>(to);
  const std::size_t bytes = size * count;
  if (static_cast<std::int64_t>(transfer.received.size() + bytes) > transfer.max_bytes) {
    transfer.is_too_large = true;
    return 0;
  }
  transfer.received.append(data, bytes);
  return bytes;
}

std::size_t give(char* data, std::size_t size, std::size_t count, void* from) {
  auto& transfer = *static_cast<Transfer*>(from);
  const std::size_t bytes = std::min(size * count, transfer.sent.size() - transfer.sent_so_far);
  std::memcpy(data, transfer.sent.data() + transfer.sent_so_far, bytes);
  transfer.sent_so_far += bytes;
  return bytes;
}

/// What was sent over a connection that turned out to be closed is sent again.
int rewind(void* of, curl_off_t offset, int origin) {
  auto& transfer = *static_cast<Transfer*>(of);
  if (origin != SEEK_SET || offset < 0 || static_cast<std::size_t>(offset) > transfer.sent.size())
    return CURL_SEEKFUNC_CANTSEEK;
  transfer.sent_so_far = static_cast<std::size_t>(offset);
  return CURL_SEEKFUNC_OK;
}

int look_for_stop(void* of, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  auto& transfer = *static_cast<Transfer*>(of);
  transfer.is_stopped = transfer.bounds->is_stopped && transfer.bounds->is_stopped();
  return transfer.is_stopped ? 1 : 0;
}

class HttpStore : public Store {
 public:
  explicit HttpStore(HttpTarget target) : target_(std::move(target)) {
    static std::once_flag once;
    std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
  }
  ~HttpStore() override {
    const QuietPipe quiet;  // the end of TLS is told
    while (const auto multi = multis_.take()) curl_multi_cleanup(*multi);
    while (const auto handle = handles_.take()) curl_easy_cleanup(*handle);
  }

  Answer get(const std::string& name, const Bounds& bounds) override { return ask(name, "GET", {}, bounds); }
  Answer has(const std::string& name, const Bounds& bounds) override { return ask(name, "HEAD", {}, bounds); }
  Answer put(const std::string& name, std::string_view bytes, const Bounds& bounds) override {
    return ask(name, "PUT", bytes, bounds);
  }
  std::vector<Answer> get_all(std::span<const std::string> names, const Bounds& bounds) override {
    return ask_all(names, "GET", bounds);
  }
  std::vector<Answer> has_all(std::span<const std::string> names, const Bounds& bounds) override {
    return ask_all(names, "HEAD", bounds);
  }

 private:
  Answer ask(const std::string& name, std::string_view method, std::string_view sent, const Bounds& bounds) {
    return with_attempts(bounds, [&] {
      Answer answer;
      exchange(std::span(&name, 1), method, sent, bounds, std::span(&answer, 1));
      return answer;
    });
  }

  std::vector<Answer> ask_all(std::span<const std::string> names, std::string_view method, const Bounds& bounds) {
    std::vector<Answer> answers(names.size());
    exchange(names, method, {}, bounds, answers);
    // What failed is tried again one by one, up to the first that fails for good.
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (!may_pass(answers[i])) continue;
      answers[i] = ask(names[i], method, {}, bounds);
      if (answers[i].verdict != Verdict::ok && answers[i].verdict != Verdict::absent) {
        const Answer last = answers[i];
        for (std::size_t rest = i + 1; rest < names.size(); ++rest)
          if (may_pass(answers[rest])) answers[rest] = last;
        break;
      }
    }
    return answers;
  }

  /// Each name once, several at a time; after one that fails those that are under way alone.
  void exchange(std::span<const std::string> names, std::string_view method, std::string_view sent,
                const Bounds& bounds, std::span<Answer> answers) {
    const QuietPipe quiet;
    CURLM* const multi = borrow(multis_, curl_multi_init);
    if (multi == nullptr) {
      answers.front() = {.verdict = Verdict::silent, .reason = "libcurl gave no handle"};
      return;
    }
    std::vector<std::unique_ptr<Transfer>> running;
    std::size_t next = 0;
    bool has_failed = false;
    const auto take_answer = [&](Transfer& transfer, CURLcode code) {
      Answer& answer = answers[transfer.index] = finish(transfer, code);
      has_failed = has_failed || (answer.verdict != Verdict::ok && answer.verdict != Verdict::absent);
    };
    const auto drop = [&](std::size_t at, CURLcode code) {
      const std::unique_ptr<Transfer> done = std::move(running[at]);
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(at));
      curl_multi_remove_handle(multi, done->handle);
      take_answer(*done, code);
    };
    while (true) {
      while (!has_failed && next < names.size() && running.size() < kConnections) {
        auto transfer = std::make_unique<Transfer>();
        transfer->method = method;
        transfer->sent = sent;
        transfer->bounds = &bounds;
        transfer->index = next;
        if (!prepare(*transfer, names[next]) || curl_multi_add_handle(multi, transfer->handle) != CURLM_OK)
          take_answer(*transfer, CURLE_OUT_OF_MEMORY);
        else
          running.push_back(std::move(transfer));
        ++next;
      }
      if (running.empty()) break;
      if (!perform(multi)) {
        while (!running.empty()) drop(running.size() - 1, CURLE_OUT_OF_MEMORY);
        break;
      }
      bool is_any_done = false;
      int left = 0;
      while (const CURLMsg* message = curl_multi_info_read(multi, &left)) {
        if (message->msg != CURLMSG_DONE) continue;
        const auto found = std::find_if(running.begin(), running.end(),
                                        [&](const auto& one) { return one->handle == message->easy_handle; });
        if (found == running.end()) continue;
        drop(static_cast<std::size_t>(found - running.begin()), message->data.result);
        is_any_done = true;
      }
      if (!is_any_done && !running.empty()) curl_multi_poll(multi, nullptr, 0, kGlanceMs, nullptr);
    }
    multis_.put(multi);
  }

  /// As far as it goes without waiting. Here libcurl starts its resolver's threads, which take no signal of the host's.
  static bool perform(CURLM* multi) {
    const SignalsBlocked blocked;
    int active = 0;
    return curl_multi_perform(multi, &active) == CURLM_OK;
  }

  bool prepare(Transfer& transfer, const std::string& name) {
    CURL* const handle = transfer.handle = borrow(handles_, curl_easy_init);
    if (handle == nullptr) return false;
    const auto left = std::chrono::duration_cast<milliseconds>(transfer.bounds->until - Clock::now());
    const long time = static_cast<long>(std::max(left, milliseconds{1}).count());
    const std::string url = target_.base + "/" + name;
    add(transfer.headers, "Expect:");  // or a PUT waits a second for servers that don't know it
    add(transfer.headers, "Content-Type: application/octet-stream");
    for (const std::string& line : target_.headers) add(transfer.headers, line);
    if (target_.signed_headers)
      for (const std::string& line : target_.signed_headers(transfer.method, name, transfer.sent))
        add(transfer.headers, line);
    transfer.max_bytes = transfer.bounds->max_bytes;
    curl_easy_reset(handle);
    curl_easy_setopt(handle, CURLOPT_URL, url.c_str());
    curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(handle, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);  // the host's signals are its own
    curl_easy_setopt(handle, CURLOPT_TIMEOUT_MS, time);
    curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS, std::min(time, static_cast<long>(kLongestHttpConnect.count())));
    curl_easy_setopt(handle, CURLOPT_FOLLOWLOCATION, 0L);  // credentials go nowhere else
    curl_easy_setopt(handle, CURLOPT_USERAGENT, "tessera");
    curl_easy_setopt(handle, CURLOPT_HTTPHEADER, transfer.headers.get());
    curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(handle, CURLOPT_WRITEDATA, &transfer);
    curl_easy_setopt(handle, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(handle, CURLOPT_XFERINFOFUNCTION, look_for_stop);
    curl_easy_setopt(handle, CURLOPT_XFERINFODATA, &transfer);
    curl_easy_setopt(handle, CURLOPT_QUICK_EXIT, 1L);  // a resolver that does not answer is left behind, not waited for
    if (!target_.ca_file.empty()) {
      curl_easy_setopt(handle, CURLOPT_CAINFO, target_.ca_file.c_str());
      curl_easy_setopt(handle, CURLOPT_CAPATH, nullptr);  // else the system's are trusted besides
    }
    if (transfer.method == "HEAD") curl_easy_setopt(handle, CURLOPT_NOBODY, 1L);
    if (transfer.method == "PUT") {
      curl_easy_setopt(handle, CURLOPT_UPLOAD, 1L);
      curl_easy_setopt(handle, CURLOPT_READFUNCTION, give);
      curl_easy_setopt(handle, CURLOPT_READDATA, &transfer);
      curl_easy_setopt(handle, CURLOPT_SEEKFUNCTION, rewind);
      curl_easy_setopt(handle, CURLOPT_SEEKDATA, &transfer);
      curl_easy_setopt(handle, CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(transfer.sent.size()));
      transfer.max_bytes = std::int64_t{1} << 20;  // what a server says of it
    }
    return true;
  }

  Answer finish(Transfer& transfer, CURLcode code) {
    long status = 0;
    if (transfer.handle != nullptr) {
      curl_easy_getinfo(transfer.handle, CURLINFO_RESPONSE_CODE, &status);
      handles_.put(transfer.handle);
    }
    if (transfer.is_stopped) return {.verdict = Verdict::stopped};
    if (transfer.is_too_large)
      return {.verdict = Verdict::refused,
              .reason = fmt::format("an answer of more than {} bytes", transfer.max_bytes)};
    if (code != CURLE_OK) return {.verdict = Verdict::silent, .reason = curl_easy_strerror(code)};
    const bool is_put = transfer.method == "PUT";
    if (status == 200 || (is_put && (status == 201 || status == 204)))
      return {.verdict = Verdict::ok, .body = std::move(transfer.received)};
    const std::string word = target_.error_word ? target_.error_word(transfer.received) : std::string();
    // A bucket that is not there is no miss: its name is misspelt.
    if ((status == 404 || status == 410) && !is_put && word != "NoSuchBucket") return {.verdict = Verdict::absent};
    const bool may_pass = status == 408 || status == 429 || (status >= 500 && status != 501 && status != 507);
    return {.verdict = may_pass ? Verdict::failed : Verdict::refused,
            .reason = fmt::format("{}: HTTP {}{}{}", transfer.method, status, word.empty() ? "" : " ", word)};
  }

  /// One that was used before, with its open connections, or a new one.
  template <class Handle, class Make>
  static Handle* borrow(Idle<Handle*>& idle, const Make& make) {
    const std::optional<Handle*> used = idle.take();
    return used ? *used : make();
  }

  const HttpTarget target_;
  Idle<CURL*> handles_;
  Idle<CURLM*> multis_;
};

}  // namespace

std::unique_ptr<Store> make_http_store(HttpTarget target) { return std::make_unique<HttpStore>(std::move(target)); }

}  // namespace tessera::remote

#else

namespace tessera::remote {

std::unique_ptr<Store> make_http_store(HttpTarget target) {
  throw Error(ErrorKind::unsupported,
              fmt::format("remote cache {}: this tessera was built without libcurl", target.shown));
}

}  // namespace tessera::remote

#endif
