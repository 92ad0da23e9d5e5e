#!/usr/bin/env bash
# Starts the sidecar that `make build` made, on the embedded log unless --store says otherwise, with its data in the
# git-ignored .sluice/, and prints what to try. Further flags are passed on to the sidecar.
set -euo pipefail
cd "$(dirname "$0")/../.."

cat >&2 <<'HINTS'
Starting a sidecar with its data in .sluice/. Ctrl-C stops it.
The line {"ready":true,…} says that it can be used. Then try, in another terminal:

  publish      curl -d '{"order": 17}' http://127.0.0.1:7070/v1/topics/orders.created/events
  subscribe    bin/sluice sub orders.created --group billing --from earliest
  and publish  bin/sluice pub orders.created '{"order": 18}' --key customer-17
  replay       curl 'http://127.0.0.1:8083/replay?topic=orders.created'
  export       bin/sluice export orders.created -o orders.ndjson
  who is where bin/sluice groups orders.created
  status       curl http://127.0.0.1:7071/v1/status
  metrics      curl http://127.0.0.1:7071/metrics
  load         bin/sluice-bench publish --help

HINTS
exec bin/sluice-sidecar --data-dir .sluice/sidecar "$@"
