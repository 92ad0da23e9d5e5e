#!/usr/bin/env bash
# Starts the control plane and the sidecar that `make build` made, the sidecar on the embedded log unless --store says
# otherwise, with their data in the git-ignored .sluice/, and prints what to try. Further flags are passed on to the sidecar.
set -euo pipefail
cd "$(dirname "$0")/../.."

cat >&2 <<'HINTS'
Starting a control plane and a sidecar with their data in .sluice/. Ctrl-C stops both.
The console is at http://127.0.0.1:7080/
The second line {"ready":true,…} says that the sidecar can be used. Then try, in another terminal:

  publish      curl -d '{"order": 17}' http://127.0.0.1:7070/v1/topics/orders.created/events
  subscribe    bin/sluice sub orders.created --group billing --from earliest
  and publish  bin/sluice pub orders.created '{"order": 18}' --key customer-17
  limit        bin/sluice policy set orders.created publish.rate=5 publish.burst=5
  who has it   bin/sluice fleet
  replay       curl 'http://127.0.0.1:8083/replay?topic=orders.created'
  export       bin/sluice export orders.created orders.ndjson
  who is where bin/sluice groups orders.created
  status       curl http://127.0.0.1:7071/v1/status
  load         bin/sluice-bench publish --help

HINTS

# Job control gives each its own process group: Ctrl-C then reaches this shell alone, whose wait it ends. Each is told once to
# stop, or at once on a second Ctrl-C. One that ends by itself takes the other along.
set -m
bin/sluice-controlplane --data-dir .sluice/controlplane &
bin/sluice-sidecar --data-dir .sluice/sidecar --control-plane 127.0.0.1:18000 "$@" &
stop() { kill -TERM %1 %2 2>/dev/null || true; }
trap : INT TERM
status=0
wait -n || status=$?
trap stop INT TERM
stop
wait
exit "$status"
