#!/usr/bin/env bash
# `make race`: the tests of what has goroutines, with the race detector and -short, since make test runs them at their size: one round
# of schedules is enough to see races. System tests of the programs are not among them: it would see the tests and not the programs
# that they start. `race.sh whole` prints the packages of which it leaves no test out, which .ci/run then runs here alone.
set -euo pipefail
cd "$(dirname "$0")/../.."

if deploy/dev/deps.sh missing | grep -q ': the race detector'; then
  echo "The race detector needs a C compiler: sudo make deps" >&2
  exit 2
fi
# A package shows the detector something if its code starts goroutines, or if its tests do so to what they share.
starts_goroutines() {
  local folder=$1 imports=$2
  grep -qE '^\s*go |\.Go\(|AfterFunc\(' --exclude='*_test.go' "$folder"/*.go && return
  [[ " $imports " =~ \ (sync|sync/atomic|golang.org/x/sync/errgroup)\  ]] &&
    grep -qE '^\s*go |\.Go\(|Parallel\(|AfterFunc|httptest|synctest' "$folder"/*.go
}

# Go 1.26's race detector crashes now and then where MongoDB's driver lives in a bubble of testing/synctest, as in simulations
# (see golang/go#78156).
packages=$(go list -f '{{.ImportPath}} {{.Dir}} {{join .Imports " "}} {{join .TestImports " "}} {{join .XTestImports " "}}' work |
  grep -vE '^[^ ]*(/(examples|deploy)/|/test/(contract|controlplane|fleet|sidecar) |/bench/scenarios |/(bubbletest|simulation|mongomodel|facts) )' |
  while read -r package folder imports; do if starts_goroutines "$folder" "$imports"; then echo "$package"; fi; done)
# Left out is what works out something large in one goroutine, which takes minutes with the detector, is a browser's, or measures
# memory, which the detector needs for itself.
large='^(TestConsole|TestALargeFleetOnASlowLine|TestPoliciesAreBounded|TestHistoryIsOnDisk|TestHistoryIsBounded|TestDocumentsAreBounded'
large+='|TestComparisonsAreBounded|TestCostly|TestGuessesAreSlow|TestConformanceOnDisk|TestEveryCommandHonoursIts|TestExitStatus'
large+='|TestExamples$|TestExportIsResumed|TestConvergence|TestRandomRequests|TestOneIdentityStopsNoOther|TestManyRestartsLeaveFewFiles'
large+='|TestPowerFailuresWhileSegmentsAreMerged|TestDamage|TestAnswersAreDescribed|TestDeadLettersOfAPageAreBounded|TestHeapBy'
large+='|TestIdleConnections$|TestScenarios$|TestManyTenantsAreAskedForTogether)'
# One goroutine compares the schedules of a log with a model.
models='^TestConformanceInMemory$/^Scheduled$/(^model$|_at_one_time_)'
# Figures and heaps are not measured with the detector.
whole() {
  local tests
  tests=$(sed -nE 's/^func ((Test|Fuzz|Example)\w*)\(.*/\1/p' "$1"/*_test.go 2>/dev/null) || return
  ! grep -qE "$large" <<<"$tests" && ! grep -qE 'figures\.|heaptest\.|AllocsPerRun' "$1"/*_test.go
}
if [ "${1:-}" = whole ]; then
  # shellcheck disable=SC2086 # the packages are words
  go list -f '{{.ImportPath}} {{.Dir}}' $packages | while read -r package folder; do if whole "$folder"; then echo "$package"; fi; done
  exit
fi
# Those that take longest come first, as in test.sh.
slow='/(test/(sdk|testkit)|sdk/cmd/sluice|sluice/(sidecar|controlplane)|group|pebblelog)$'
# -s and -w halve the time that linking takes; reports of races need neither.
# shellcheck disable=SC2046 # the packages are words
CGO_ENABLED=1 go test -short -skip "$large|$models" -json -race -trimpath -vet=off -ldflags='-s -w' -p $((2 * $(getconf _NPROCESSORS_ONLN))) \
  -timeout 30m $(grep -E "$slow" <<<"$packages") $(grep -vE "$slow" <<<"$packages") | CGO_ENABLED=0 go run -trimpath ./test/testreport
