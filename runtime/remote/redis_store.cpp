#include "runtime/remote/redis_store.h"

#include <fmt/format.h>

#include "tessera/error.h"

#ifdef TESSERA_HAS_REDIS

#include <hiredis/hiredis.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>

#include "runtime/remote/attempts.h"
#include "runtime/remote/credentials.h"
#include "runtime/remote/idle.h"
#include "runtime/remote/link.h"
#include "runtime/remote/quiet_pipe.h"

namespace tessera::remote {

namespace {

/// Commands that are sent before their first answer is read.
constexpr std::size_t kPipelined = 256;
/// Of an answer, beside the bytes it was asked for.
constexpr std::int64_t kFrameBytes = 256;

struct FreeReader {
  void operator()(redisReader* reader) const { redisReaderFree(reader); }
};
struct FreeReply {
  void operator()(redisReply* reply) const { freeReplyObject(reply); }
};
using Reply = std::unique_ptr<redisReply, FreeReply>;

using Words = std::vector<std::string_view>;

void append_command(std::string& to, const Words& words) {
  std::vector<const char*> starts;
  std::vector<std::size_t> sizes;
  for (const std::string_view word : words) {
    starts.push_back(word.data());
    sizes.push_back(word.size());
  }
  char* text = nullptr;
  const int size = redisFormatCommandArgv(&text, static_cast<int>(words.size()), starts.data(), sizes.data());
  if (size < 0) throw std::bad_alloc();
  to.append(text, static_cast<std::size_t>(size));
  redisFreeCommand(text);
}

/// A connection that is greeted: authenticated, in its database.
class Connection {
 public:
  explicit Connection(std::unique_ptr<Link> link) : link_(std::move(link)), reader_(redisReaderCreate()) {}

  bool is_stale() const { return link_->is_stale(); }

  /// Sends the commands and reads as many replies; fewer where something failed, and then the connection is of no use.
  std::vector<Reply> ask(const std::string& commands, std::size_t count, const Bounds& bounds, Answer& problem) {
    std::vector<Reply> replies;
    if (!reader_) throw std::bad_alloc();
    if (!link_->send(commands, bounds, problem)) return replies;
    std::int64_t unread = 0;  // bytes since the last whole reply
    while (replies.size() < count) {
      // What nobody asked for: an array that would be set aside before it is there, or no reply of this protocol.
      if (reader_->ridx < 0 && reader_->pos < reader_->len &&
          std::strchr("+-:$_", reader_->buf[reader_->pos]) == nullptr) {
        problem = {.verdict = Verdict::refused, .reason = "it does not answer as Redis does"};
        return replies;
      }
      void* reply = nullptr;
      if (redisReaderGetReply(reader_.get(), &reply) != REDIS_OK) {
        problem = {.verdict = Verdict::refused, .reason = "it does not answer as Redis does"};
        return replies;
      }
      if (reply != nullptr) {
        replies.emplace_back(static_cast<redisReply*>(reply));
        unread = 0;
        continue;
      }
      if (unread > bounds.max_bytes + kFrameBytes) {
        problem = {.verdict = Verdict::refused,
                   .reason = fmt::format("an answer of more than {} bytes", bounds.max_bytes)};
        return replies;
      }
      std::string bytes;
      if (!link_->receive(bytes, bounds, problem)) return replies;
      unread += static_cast<std::int64_t>(bytes.size());
      if (redisReaderFeed(reader_.get(), bytes.data(), bytes.size()) != REDIS_OK) throw std::bad_alloc();
    }
    return replies;
  }

 private:
  std::unique_ptr<Link> link_;
  std::unique_ptr<redisReader, FreeReader> reader_;
};

/// The first word of an error, WRONGPASS say: what follows may quote what was sent.
std::string error_word(const redisReply& reply) {
  const std::string_view text(reply.str, reply.len);
  const std::string_view word = text.substr(0, std::min<std::size_t>(text.find(' '), 32));
  const bool is_word = std::all_of(word.begin(), word.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
  return word.empty() || !is_word ? "an error" : std::string(word);
}

/// Errors that pass: it is starting, or a script keeps it busy, or its master is away.
bool is_passing(const std::string& word) {
  static constexpr std::string_view kPassing[] = {"LOADING", "BUSY", "TRYAGAIN", "MASTERDOWN", "CLUSTERDOWN"};
  return std::find(std::begin(kPassing), std::end(kPassing), word) != std::end(kPassing);
}

class RedisStore : public Store {
 public:
  RedisStore(LinkTarget target, std::string database, std::string prefix, RedisCredentials credentials)
      : target_(std::move(target)), prefix_(std::move(prefix)) {
    if (!credentials.password.empty()) {
      Words words{"AUTH"};
      if (!credentials.username.empty()) words.push_back(credentials.username);
      words.push_back(credentials.password);
      append_command(greeting_, words);
      greetings_.push_back("AUTH");
    }
    if (database != "0") {
      append_command(greeting_, {"SELECT", database});
      greetings_.push_back("SELECT");
    }
  }

  Answer get(const std::string& name, const Bounds& bounds) override { return ask({"GET", key(name)}, bounds); }
  Answer has(const std::string& name, const Bounds& bounds) override { return ask({"EXISTS", key(name)}, bounds); }
  Answer put(const std::string& name, std::string_view bytes, const Bounds& bounds) override {
    return ask({"SET", key(name), bytes}, bounds);
  }
  std::vector<Answer> get_all(std::span<const std::string> names, const Bounds& bounds) override {
    return ask_all("GET", names, bounds);
  }
  std::vector<Answer> has_all(std::span<const std::string> names, const Bounds& bounds) override {
    return ask_all("EXISTS", names, bounds);
  }
  Claim claim(const std::string& name, const std::string& token, std::chrono::milliseconds time,
              const Bounds& bounds) override {
    const Answer answer = ask({"SET", key(name), token, "NX", "PX", std::to_string(time.count())}, bounds);
    if (answer.verdict == Verdict::ok) return Claim::got;
    if (answer.verdict == Verdict::silent) return Claim::silent;
    if (answer.verdict != Verdict::absent) return Claim::none;
    // Its own, where the first answer was lost and the command sent again.
    return get(name, bounds).body == token ? Claim::got : Claim::held;
  }
  void give_up(const std::string& name, const Bounds& bounds) override { ask({"DEL", key(name)}, bounds); }

 private:
  std::string key(const std::string& name) const { return prefix_ + ":" + name; }

  /// The words live as long as the call.
  Answer ask(const Words& words, const Bounds& bounds) {
    std::string command;
    append_command(command, words);
    return with_attempts(bounds, [&] { return std::move(exchange(command, 1, words.front(), bounds).front()); });
  }

  std::vector<Answer> ask_all(std::string_view verb, std::span<const std::string> names, const Bounds& bounds) {
    std::vector<Answer> answers;
    while (answers.size() < names.size()) {
      const auto some = names.subspan(answers.size(), std::min(kPipelined, names.size() - answers.size()));
      std::string commands;
      for (const std::string& name : some) append_command(commands, {verb, key(name)});
      std::vector<Answer> part;
      const Answer last = with_attempts(bounds, [&] {
        part = exchange(commands, some.size(), verb, bounds);
        return Answer{.verdict = part.back().verdict, .body = {}, .reason = part.back().reason};
      });
      std::move(part.begin(), part.end(), std::back_inserter(answers));
      if (last.verdict != Verdict::ok && last.verdict != Verdict::absent) answers.resize(names.size(), last);
    }
    return answers;
  }

  /// So many answers, those after a failure like it.
  std::vector<Answer> exchange(const std::string& commands, std::size_t count, std::string_view verb,
                               const Bounds& bounds) {
    const QuietPipe quiet;
    Answer problem;
    std::vector<Answer> answers;
    std::unique_ptr<Connection> connection = borrow(bounds, problem);
    if (connection) {
      const std::vector<Reply> replies = connection->ask(commands, count, bounds, problem);
      for (const Reply& reply : replies) answers.push_back(answer_of(*reply, verb));
      if (replies.size() == count) idle_.put(std::move(connection));
    }
    answers.resize(count, problem);
    return answers;
  }

  static Answer answer_of(const redisReply& reply, std::string_view verb) {
    if (reply.type == REDIS_REPLY_ERROR) {
      const std::string word = error_word(reply);
      return {.verdict = is_passing(word) ? Verdict::failed : Verdict::refused,
              .reason = fmt::format("{}: {}", verb, word)};
    }
    if (verb == "GET" && reply.type == REDIS_REPLY_STRING)
      return {.verdict = Verdict::ok, .body = {reply.str, reply.len}};
    if (verb == "GET" && reply.type == REDIS_REPLY_NIL) return {.verdict = Verdict::absent};
    if (verb == "EXISTS" && reply.type == REDIS_REPLY_INTEGER)
      return {.verdict = reply.integer > 0 ? Verdict::ok : Verdict::absent};
    if (verb == "SET" && reply.type == REDIS_REPLY_STATUS) return {.verdict = Verdict::ok};
    if (verb == "SET" && reply.type == REDIS_REPLY_NIL) return {.verdict = Verdict::absent};  // NX: it is there
    if (verb == "DEL" && reply.type == REDIS_REPLY_INTEGER) return {.verdict = Verdict::ok};
    return {.verdict = Verdict::refused, .reason = fmt::format("{}: it does not answer as Redis does", verb)};
  }

  std::unique_ptr<Connection> borrow(const Bounds& bounds, Answer& problem) {
    while (auto used = idle_.take())
      if (!(*used)->is_stale()) return std::move(*used);
    std::unique_ptr<Link> link = Link::open(target_, bounds, problem);
    if (!link) return nullptr;
    auto connection = std::make_unique<Connection>(std::move(link));
    if (greetings_.empty()) return connection;
    const std::vector<Reply> replies = connection->ask(greeting_, greetings_.size(), bounds, problem);
    if (replies.size() < greetings_.size()) return nullptr;
    for (std::size_t i = 0; i < replies.size(); ++i) {
      const Reply& reply = replies[i];
      if (reply->type == REDIS_REPLY_STATUS) continue;
      const std::string word =
          reply->type == REDIS_REPLY_ERROR ? error_word(*reply) : "it does not answer as Redis does";
      problem = {.verdict = is_passing(word) ? Verdict::failed : Verdict::refused,
                 .reason = fmt::format("{}: {}", greetings_[i], word)};
      return nullptr;
    }
    return connection;
  }

  const LinkTarget target_;
  const std::string prefix_;
  std::string greeting_;                     ///< commands after the connection; holds the password
  std::vector<std::string_view> greetings_;  ///< their verbs
  Idle<std::unique_ptr<Connection>> idle_;
};

}  // namespace

std::unique_ptr<Store> make_redis_store(const RemoteOptions& options, const Authority& authority,
                                        const std::string& path, bool has_tls) {
  std::string database = "0", prefix = "tessera";
  if (path.size() > 1) {
    const std::size_t slash = std::min(path.find('/', 1), path.size());
    database = path.substr(1, slash - 1);
    if (slash + 1 < path.size()) prefix = path.substr(slash + 1);
  }
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (database.empty() || database.size() > 9 || !std::all_of(database.begin(), database.end(), is_digit))
    throw Error(ErrorKind::usage,
                "remote cache: the URL's path is not of the form /DATABASE[/PREFIX], the database being a number");
  RedisCredentials credentials;
  if (!options.credentials.empty()) credentials = read_redis_credentials(options.credentials);
  return std::make_unique<RedisStore>(LinkTarget{.host = authority.host,
                                                 .port = authority.port.empty() ? "6379" : authority.port,
                                                 .has_tls = has_tls,
                                                 .ca_file = options.ca_file.string()},
                                      database, prefix, std::move(credentials));
}

}  // namespace tessera::remote

#else

namespace tessera::remote {

std::unique_ptr<Store> make_redis_store(const RemoteOptions& options, const Authority&, const std::string&, bool) {
  throw Error(ErrorKind::unsupported,
              fmt::format("remote cache {}: this tessera was built without hiredis", options.url));
}

}  // namespace tessera::remote

#endif
