#!/usr/bin/env bash
# What the tests need beside Go, make and git: the one list of it.
#
#   deploy/dev/deps.sh missing   prints, of each thing that is missing, Debian's packages and what is left out without them
#   deploy/dev/deps.sh install   installs those packages, and says first what they are and how much is downloaded
set -euo pipefail

# Programs of which any will do | Debian's packages | what is left out without them. cc stands for a C compiler with the C
# library's headers.
list='
cc | gcc libc6-dev | the race detector
curl | curl | the example for curl
node nodejs | nodejs | the console in a browser, sdk/js and its example
npm | npm | the console in a browser, sdk/js and its example
chromium-headless-shell chromium chromium-browser google-chrome | chromium-headless-shell | the console in a browser
prometheus | prometheus | the deployment seen by Prometheus
promtool | prometheus | the rules and alerts for Prometheus
openssl | openssl | the tokens of the deployment
systemd-analyze | systemd | the units of the packages
'

has() {
  if [ "$1" = cc ]; then
    # A compiler without headers is not enough, so one is tried.
    "${CC:-gcc}" -x c -o /dev/null - 2>/dev/null <<<$'#include <stdlib.h>\nint main(void) { return 0; }'
    return
  fi
  local program
  for program in "$@"; do
    if command -v "$program" >/dev/null; then return; fi
  done
  return 1
}

missing() {
  local programs packages what
  while IFS='|' read -r programs packages what; do
    packages=${packages# } packages=${packages% }
    # shellcheck disable=SC2086 # the names are words
    if [ -n "$programs" ] && ! has $programs; then
      echo "$packages:$what"
    fi
  done <<<"$list"
}

install() {
  local packages
  packages=$(missing | cut -d : -f 1 | tr ' ' '\n' | sed '/^$/d' | sort -u)
  if [ -z "$packages" ]; then
    echo "Nothing is missing."
    return
  fi
  # shellcheck disable=SC2086 # the packages are words
  set -- $packages
  echo "Missing Debian packages: $*"
  if ! command -v apt-get >/dev/null; then
    echo "There is no apt-get here; install them as your system does." >&2
    return 1
  fi
  if [ "$(id -u)" != 0 ]; then
    echo "Only root can install them: sudo make deps" >&2
    return 1
  fi
  export DEBIAN_FRONTEND=noninteractive LC_ALL=C
  apt-get update -qq || return
  # apt-get says how much it would download and unpack, and ends with an error as nothing may be installed.
  apt-get install --no-install-recommends --assume-no "$@" | grep -E '^(Need to get|After this)' || true
  apt-get install --no-install-recommends -qq -y "$@" >/dev/null || return
  if command -v systemctl >/dev/null && systemctl is-active --quiet prometheus 2>/dev/null; then
    echo "Debian runs Prometheus as a service; the tests do not need that: systemctl disable --now prometheus"
  fi
}

case ${1:-} in
  missing | install) "$1" ;;
  *) echo "usage: $0 missing | install" >&2; exit 2 ;;
esac
