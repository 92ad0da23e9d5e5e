#!/usr/bin/env bash
# Runs at its full size, once, what make test shortens (-short), then repeats the tests that use testkit.Rounds, one after the other,
# and ends with the first failure. MINUTES are for all of these together: a share for each, and three, ten minutes of an hour, for the
# application that everything else is there for. SEED is that of each one's first round, RUN a regular expression of their names. With
# SEED and without MINUTES each has one round: that repeats a failure. LEFT_OUT=1 runs only those that make test leaves out.
set -euo pipefail
cd "$(dirname "$0")/../.."

# Each line is a package's folder and a test in it.
mark=Rounds
if [ -n "${LEFT_OUT:-}" ]; then mark=SoakOnly; fi
tests=$(grep -rl --include='*_test.go' "testkit\.$mark(" . | sort | xargs awk -v mark="testkit[.]$mark[(]" '
  /^func Test/ { name = $2; sub(/\(.*/, "", name) }
  $0 ~ mark { folder = FILENAME; sub(/\/[^\/]*$/, "", folder); print folder, name }' | awk -v run="${RUN:-.}" '$2 ~ run')
if [ -z "$tests" ]; then
  echo "no test that soaks is called $RUN" >&2
  exit 2
fi

shares() { # how many of them a list of tests has
  awk '{ n += $2 == "TestEffectsHappenOnce" ? 3 : 1 } END { print n }' <<<"$1"
}
share=0
if [ -n "${MINUTES:-}" ] || [ -z "${SEED:-}" ]; then
  share=$((${MINUTES:-60} * 60 / $(shares "$tests")))
fi
export SLUICE_SOAK_SEED=${SEED:-}

detector=-race
if deploy/dev/deps.sh missing | grep -q ': the race detector'; then
  detector=''
fi
log=$(mktemp) binary=$(mktemp)
trap 'rm -f "$log" "$binary"' EXIT
if [ "${RUN:-.}${SEED:-}${LEFT_OUT:-}" = . ]; then
  echo "=== what make test shortens"
  # shellcheck disable=SC2046 # the folders are words
  CGO_ENABLED=0 go test -trimpath -vet=off -ldflags='-s -w' -count=1 -timeout 2h \
    $(grep -rlE --include='*_test.go' 'rapid\.Check\(|testing\.Short\(|(heaptest|testkit)\.Some\(|browsertest\.Run\(' . | xargs dirname | sort -u)
fi
built=''
while read -r folder name; do
  seconds=$((share * $(shares "$folder $name")))
  export SLUICE_SOAK_TIME=${seconds}s # 0s is one round
  lasts=$SLUICE_SOAK_TIME
  [ "$share" != 0 ] || lasts='one round'
  echo "=== $name in $folder, $lasts"
  race=$detector cgo=1
  case $folder in */simulation | ./test/*) race='' ;; esac # see race.sh
  [ -n "$race" ] || cgo=0
  if [ "$built" != "$folder" ]; then
    CGO_ENABLED=$cgo go test $race -trimpath -vet=off -ldflags='-s -w' -c -o "$binary" "$folder"
    built=$folder
  fi
  # A round that has begun is waited for.
  if ! (cd "$folder" && "$binary" -test.timeout $((seconds + 1800))s -test.v -test.run "^$name\$") </dev/null 2>&1 |
    tee "$log" | awk '/ rounds done: / { sub(/.* rounds done/, "rounds done"); print; fflush() }'; then
    grep -v '^ *=== ' "$log" || true
    exit 1
  fi
done <<<"$tests"
