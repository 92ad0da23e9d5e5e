#!/usr/bin/env bash
# `make test`: checks the format and runs every test. What is missing on this machine (see deps.sh) is
# installed as root; else what needs it is left out, and named in the last line. With STRICT=1, or CI, that is a failure.
# A step that fails stops none of the others. WITHOUT has packages, one a line, whose tests run elsewhere: see .ci/run.
set -uo pipefail
cd "$(dirname "$0")/../.."
trap 'exit 130' INT

strict=
for setting in "${STRICT:-}" "${CI:-}"; do
  case $setting in '' | 0 | false) ;; *) strict=1 ;; esac
done
output=$(mktemp) inputs=$(mktemp) beside=$(mktemp)
trap 'rm -f "$output" "$inputs" "$beside"' EXIT
status=0 summary='' failures=''

# step NAME COMMAND… runs a step. The output of a failed step is repeated at the end, except that of the tests, which have a report.
step() {
  local name=$1 begin=$SECONDS result=ok
  shift
  echo "=== $name"
  if ! "$@" 2>&1 | tee "$output"; then
    result=failed status=1
    if [ "$name" != tests ]; then
      failures+="--- $name"$'\n'$(tail -n 30 "$output")$'\n'
    fi
  fi
  summary+=$(printf '  %-12s %-6s %4d s' "$name" "$result" $((SECONDS - begin)))$'\n'
}

modules() {
  if ! GOPROXY=off go list -deps -test work >/dev/null 2>&1; then
    echo "Downloading the Go modules of the programs and their tests: about 117 MB the first time."
    go list -deps -test work >/dev/null
  fi
}

# The tests start what is built here, and results of tests are cached for as long as it stays the same.
programs() { CGO_ENABLED=0 go run -trimpath ./test/testkit/testinputs >"$inputs"; }

# -short: make soak runs at full size what this shortens. -trimpath and no C let make build, lint and the tests share what is compiled, wherever that is. The vet that go test would run
# is left to make lint; -s and -w halve the time that linking takes.
tests() {
  if command -v npm >/dev/null && [ ! -d test/browsertest/node_modules ]; then
    echo "The console's test has npm download playwright-core and axe-core: 3.5 MB the first time."
  fi
  if command -v npm >/dev/null && [ ! -d sdk/js/node_modules ]; then
    echo "The tests of sdk/js have npm download TypeScript, esbuild and MongoDB's driver: 20 MB the first time."
  fi
  # Those that take longest come first, so that nobody waits for one of them alone in the end.
  local slow='test/controlplane controlplane/internal/console sidecar/internal/simulation test/sidecar test/fleet test/contract
    test/examples test/sdk test/jstest sidecar bench/scenarios sdk/cmd/sluice sidecar/internal/eventlog/pebblelog
    sidecar/internal/eventlog/mongolog/bubbletest deploy/deploytest controlplane sidecar/internal/outbox sidecar/internal/quota'
  local package packages
  packages=$(go list -e work | grep -vxF "${WITHOUT:-}")
  slow=$(for package in $slow; do grep -x "github.com/sluice-bus/sluice/$package" <<<"$packages"; done)
  # The tests mostly wait, for processes and for what they limit to so much a second. A package that hangs is ended.
  # shellcheck disable=SC2046 # the packages are words
  CGO_ENABLED=0 go test -short -json -p $((2 * $(getconf _NPROCESSORS_ONLN))) -trimpath -vet=off -ldflags='-s -w' -timeout 30m \
    $slow $(grep -vxF "$slow" <<<"$packages") | CGO_ENABLED=0 go run -trimpath ./test/testreport
}

missing() { deploy/dev/deps.sh missing | grep -v ': the race detector' || true; } # see race.sh
if [ "$(id -u)" = 0 ] && [ -n "$(missing)" ]; then
  # What cannot be installed is left out.
  echo "=== packages"
  deploy/dev/deps.sh install || echo "Going on without them."
fi
missing=$(missing)

step modules modules
step format make --no-print-directory check-fmt
step programs programs
# shellcheck disable=SC1090 # variables
. "$inputs"
[ -z "${MONGODB_URI:-}" ] || step test-server make --no-print-directory test-server
step tests tests

printf '\n%s=== %d s in all\n%s' "$failures" "$SECONDS" "$summary"
if [ -n "$missing" ]; then
  [ -z "$strict" ] || status=1
  what=$(sed 's/.*: //; s/, /\n/g' <<<"$missing" | sort -u | paste -sd , | sed 's/,/, /g')
  echo "Left out${strict:+, which is a failure here}: $what. What they need comes with: sudo make deps"
fi
exit "$status"
