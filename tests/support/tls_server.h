// A server that greets by TLS, with a certificate made for it, and then does what the test says.
#pragma once

#include <arpa/inet.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <utility>

namespace tessera::testing {

class TlsServer {
 public:
  /// `certificate`: where the PEM file goes that clients are to trust; it is for 127.0.0.1. `meet` has each connection,
  /// greeted, and its socket, which is closed afterwards.
  TlsServer(const std::filesystem::path& certificate, std::function<void(SSL*, int)> meet)
      : meet_(std::move(meet)), context_(SSL_CTX_new(TLS_server_method())) {
    EVP_PKEY* const key = EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519");
    X509* const made = X509_new();
    X509_set_version(made, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(made), 1);
    X509_gmtime_adj(X509_getm_notBefore(made), -60);
    X509_gmtime_adj(X509_getm_notAfter(made), 3'600);
    X509_set_pubkey(made, key);
    X509_NAME* const name = X509_get_subject_name(made);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("test"), -1, -1, 0);
    X509_set_issuer_name(made, name);
    X509_EXTENSION* const host = X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "IP:127.0.0.1");
    X509_add_ext(made, host, -1);
    X509_EXTENSION_free(host);
    if (X509_sign(made, key, nullptr) == 0 || SSL_CTX_use_certificate(context_, made) != 1 ||
        SSL_CTX_use_PrivateKey(context_, key) != 1)
      std::abort();
    std::FILE* const file = std::fopen(certificate.c_str(), "w");
    PEM_write_X509(file, made);
    std::fclose(file);
    X509_free(made);
    EVP_PKEY_free(key);
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (::bind(listener_, reinterpret_cast<const sockaddr*>(&address), size) != 0 || ::listen(listener_, 16) != 0 ||
        ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0)
      std::abort();
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~TlsServer() {
    is_stopped_ = true;
    thread_.join();
    ::close(listener_);
    SSL_CTX_free(context_);
  }
  TlsServer(const TlsServer&) = delete;
  TlsServer& operator=(const TlsServer&) = delete;

  std::string authority() const { return "127.0.0.1:" + std::to_string(port_); }
  int greeted() const { return greeted_; }

 private:
  void serve() {
    while (!is_stopped_) {
      pollfd waiting{.fd = listener_, .events = POLLIN, .revents = 0};
      if (::poll(&waiting, 1, 20) <= 0) continue;
      const int connection = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (connection < 0) continue;
      SSL* const tls = SSL_new(context_);
      SSL_set_fd(tls, connection);
      if (SSL_accept(tls) == 1) {
        ++greeted_;
        meet_(tls, connection);
      }
      SSL_free(tls);
      ::close(connection);
    }
  }

  const std::function<void(SSL*, int)> meet_;
  SSL_CTX* const context_;
  int listener_ = -1, port_ = 0;
  std::atomic<int> greeted_{0};
  std::atomic<bool> is_stopped_{false};
  std::thread thread_;
};

}  // namespace tessera::testing
