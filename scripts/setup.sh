# Sourced by the scripts beside it: brings a bare Debian 12 or Ubuntu 24.04 to the point where tessera builds, and finds or
# fetches NVRTC. Changes nothing that is already there; without root or network it says what is missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '%s\n' "$*" >&2; }

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; elif command -v sudo >/dev/null; then sudo "$@"; else return 1; fi
}

install_packages() {
  local wanted=(cmake ninja-build g++ git libfmt-dev libcli11-dev doctest-dev nlohmann-json3-dev libssl-dev libzstd-dev libcurl4-openssl-dev
    libhiredis-dev)
  local missing=()
  for package in "${wanted[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  # Another cmake, ninja or compiler than the distribution's will do.
  local left=()
  for package in "${missing[@]}"; do
    case "$package" in
      cmake) command -v cmake >/dev/null && continue ;;
      ninja-build) command -v ninja >/dev/null && continue ;;
      g++) command -v g++ >/dev/null && continue ;;
      git) command -v git >/dev/null && continue ;;
    esac
    left+=("$package")
  done
  [ ${#left[@]} -eq 0 ] && return 0
  say "installing: ${left[*]}"
  if ! as_root env DEBIAN_FRONTEND=noninteractive sh -c \
    'apt-get update -qq && apt-get install -y -qq --no-install-recommends "$@"' install "${left[@]}" >&2; then
    say "these packages are missing and could not be installed: ${left[*]}"
    return 1
  fi
}

nvrtc_below() {  # prints nothing where there is none, the folder included
  find "$1" -name 'libnvrtc.so.1*' ! -name '*.alt.*' 2>/dev/null | head -1 || true
}

# Where CUDA is not installed, NVRTC and its builtins come from PyPI into a folder of this clone.
find_nvrtc() {
  [ -n "${TESSERA_NVRTC:-}" ] && return 0
  ls /usr/local/cuda*/lib64/libnvrtc.so* >/dev/null 2>&1 && return 0
  ldconfig -p 2>/dev/null | grep -q 'libnvrtc\.so' && return 0
  local venv=.cache/nvrtc found
  found=$(nvrtc_below "$venv")
  if [ -z "$found" ]; then
    say "CUDA is not installed: fetching NVRTC from PyPI into $venv"
    if ! python3 -m venv "$venv" >/dev/null 2>&1; then
      as_root env DEBIAN_FRONTEND=noninteractive sh -c \
        'apt-get update -qq && apt-get install -y -qq --no-install-recommends python3-venv' >&2 || true
      rm -rf "$venv"
      python3 -m venv "$venv" >&2 || { say "no NVRTC: python3 -m venv failed"; return 0; }
    fi
    "$venv/bin/pip" install --quiet --disable-pip-version-check 'nvidia-cuda-nvrtc==13.0.*' >&2 ||
      { say "no NVRTC: pip could not fetch nvidia-cuda-nvrtc; kernels will not compile here"; return 0; }
    found=$(nvrtc_below "$venv")
  fi
  [ -n "$found" ] && export TESSERA_NVRTC="$PWD/$found"
  return 0
}

has_gpu() { [ -e /dev/nvidiactl ]; }

configured=()  # what else the build is configured with
build() {  # build TARGET...
  cmake --preset release "${configured[@]}" >.cache/configure.log 2>&1 || { cat .cache/configure.log >&2; return 1; }
  cmake --build --preset release --target "$@" >.cache/build.log 2>&1 || { tail -n 60 .cache/build.log >&2; return 1; }
}

mkdir -p .cache
install_packages
find_nvrtc
