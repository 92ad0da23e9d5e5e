#!/usr/bin/env bash
# Sluice with nothing but curl. SLUICE_URL and SLUICE_REPLAY_URL say where the sidecar is.
set -euo pipefail
app=${SLUICE_URL:-http://127.0.0.1:7070} history=${SLUICE_REPLAY_URL:-http://127.0.0.1:8083}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# try STATUS ARGUMENTS… shows a curl command and its answer, which stays in $answer, and ends the script unless the answer
# has that status.
try() {
  local want=$1 status
  shift
  printf '\n$ curl'
  for argument in "$@"; do
    case $argument in
      *[!A-Za-z0-9_.:/=@-]*) printf " '%s'" "$argument" ;;
      *) printf ' %s' "$argument" ;;
    esac
  done
  status=$(curl -sS --max-time 30 -D "$scratch/headers" -o "$scratch/body" -w '%{http_code}' "$@")
  answer=$(cat "$scratch/body")
  printf '\n%s %s\n%s\n' "$status" "$(grep -i '^retry-after:' "$scratch/headers" | tr -d '\r')" "$answer"
  if [ "$status" != "$want" ]; then
    echo "expected status $want" >&2
    exit 1
  fi
}

# has TEXT ends the script unless the last answer has the text in it.
has() {
  case $answer in
    *"$1"*) ;;
    *) echo "expected $1 in the answer" >&2; exit 1 ;;
  esac
}

echo '== Publish one event: the body is the payload; 201 says that it is fsynced.'
try 201 -d '{"order":16,"total":99.50}' -H 'Sluice-Key: customer-7' "$app/v1/topics/orders.created/events"
has '"durability":"store"'

echo
echo '== With an id of your own, publishing again is harmless: 200, and "duplicate".'
try 201 -d '{"order":17}' -H 'Idempotency-Key: order-17' "$app/v1/topics/orders.created/events"
try 200 -d '{"order":17}' -H 'Idempotency-Key: order-17' "$app/v1/topics/orders.created/events"
has '"duplicate":true'

echo
echo '== The same id with another content is a mistake of somebody: 409.'
try 409 -d '{"order":99}' -H 'Idempotency-Key: order-17' "$app/v1/topics/orders.created/events"
has '"code":"conflict"'

echo
echo '== A batch: one event a line, one result each.'
cat >"$scratch/batch.ndjson" <<'EVENTS'
{"payload":{"order":18},"opts":{"id":"order-18","key":"customer-7"}}
{"payload":{"order":19},"opts":{"id":"order-19","key":"customer-8"}}
{"payload":{"order":20},"opts":{"id":"order-20","tags":["eu"]}}
EVENTS
cat "$scratch/batch.ndjson"
try 200 --data-binary "@$scratch/batch.ndjson" -H 'Content-Type: application/x-ndjson' "$app/v1/topics/orders.created/events"
has '"id":"order-20"'

echo
echo '== More than the limit allows: 429, and when to come back. policies.yaml lets three events through.'
for n in 1 2 3; do
  try 201 -d "$n" "$app/v1/topics/demo.limited/events"
done
try 429 -d 4 "$app/v1/topics/demo.limited/events"
has '"code":"rate_limited"'

echo
echo '== History: a page of it, the events of one key, and all of it as a file.'
try 200 "$history/replay?topic=orders.created&limit=2"
has '"count":2'
try 200 "$history/replay?topic=orders.created&key=customer-7"
has '"count":2'
try 200 "$history/export?topic=orders.created"
lines=$(wc -l <"$scratch/body")
if [ "$lines" -ne 5 ]; then
  echo "expected 5 events in the export, not $lines" >&2
  exit 1
fi

echo
echo '== A consumer group: pull, work, ack. Each delivery has a lease of its own, and comes again if it is not acked in time.'
orders=$app/v1/topics/orders.created/groups/billing
acked=0
while [ "$acked" -lt 5 ]; do # events of one key come one after the other, so one pull does not get all
  try 200 -d '{"max":10,"wait_ms":10000,"opts":{"from":"earliest"}}' "$orders/pull"
  leases=$(grep -o '"lease":"[^"]*"' <<<"$answer" | cut -d: -f2 | paste -sd, -)
  try 200 -d "{\"leases\":[$leases]}" "$orders/ack"
  acked=$((acked + $(grep -o '"ok":true' <<<"$answer" | wc -l)))
done
echo
echo "$acked events pulled and acked. A lease works once:"
try 200 -d "{\"leases\":[$leases]}" "$orders/ack"
has '"code":"stale_lease"'
try 200 "$orders"
has '"lag":0'

echo
echo '== For later: 202, and the event is in the log when it is due. Until then it can be listed and cancelled.'
reminders=$app/v1/topics/reminders
try 202 -d '{"to":"ann"}' -H 'Sluice-Id: in-an-hour' -H 'Sluice-Delay-Ms: 3600000' "$reminders/events"
has '"deliver_at":'
try 200 "$reminders/scheduled"
has '"total":1'
try 204 -X DELETE "$reminders/scheduled/in-an-hour"
try 202 -d '{"to":"ben"}' -H 'Sluice-Id: in-a-moment' -H 'Sluice-Delay-Ms: 200' "$reminders/events"
try 200 -d '{"max":10,"wait_ms":10000,"opts":{"from":"earliest"}}' "$reminders/groups/mail/pull"
has '"id":"in-a-moment"'

echo
echo '== Tenants: each has a bucket of its own, and the backlog of one does not hold up the others.'
tenants=$app/v1/topics/demo.tenants
for n in $(seq 40); do
  echo "{\"payload\":$n,\"opts\":{\"headers\":{\"tenant\":\"busy\"}}}"
done >"$scratch/busy.ndjson"
try 200 --data-binary "@$scratch/busy.ndjson" -H 'Content-Type: application/x-ndjson' "$tenants/events"
try 429 -d 41 -H 'Sluice-Header-Tenant: busy' "$tenants/events"
has '"scope":"tenant"'
try 201 -d 1 -H 'Sluice-Header-Tenant: calm' "$tenants/events"
try 200 -d '{"max":3,"wait_ms":10000,"opts":{"from":"earliest"}}' "$tenants/groups/work/pull"
has '"tenant":"calm"'

echo
echo '== Server-sent events: what is stored, and then what comes, on one open request.'
echo
echo "$ curl -N '$app/v1/topics/orders.created/stream?from=earliest'"
exec 3< <(exec curl -sSN "$app/v1/topics/orders.created/stream?from=earliest")
stream=$!
events=0
while [ "$events" -lt 5 ] && read -r -t 30 line <&3; do
  echo "$line"
  case $line in data:*) events=$((events + 1)) ;; esac
done
kill "$stream"
if [ "$events" -ne 5 ]; then
  echo "expected 5 events in the stream, not $events" >&2
  exit 1
fi

echo
echo "All as expected."
