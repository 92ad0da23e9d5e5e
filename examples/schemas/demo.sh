#!/usr/bin/env bash
# A schema that changes while a topic is in use. The SLUICE_… variables say where the sidecar and the control plane are.
set -euo pipefail

# shows STATUS COMMAND… prints a command and what it says, and ends the script unless its exit status is that one.
shows() {
  local want=$1 status=0
  shift
  printf '\n$ %s\n' "$*"
  "$@" 2>&1 || status=$?
  if [ "$status" -ne "$want" ]; then
    echo "expected exit status $want, got $status" >&2
    exit 1
  fi
}

put() { sluice policy set orders.created "schema.json_schema=$(cat "$1")" --wait; }
versions() { sluice replay orders.created -o json | sed -E 's/.*"sluice-schema-version":"([0-9]+)".*"payload":(.*)}$/version \1: \2/'; }

echo '== The first schema: what does not follow it is refused.'
shows 0 put order-1.json
shows 0 sluice pub orders.created '{"order":17,"total":99.5}'
shows 1 sluice pub orders.created '{"order":18,"currency":"EUR"}'

echo
echo '== A pipeline asks before a release. An optional property may be added: what is stored follows the new schema, too.'
shows 0 sluice schema check order-2.json --topic orders.created
shows 0 put order-2.json
shows 0 sluice pub orders.created '{"order":18,"currency":"EUR"}'
shows 0 versions

echo
echo '== What stored events do not follow is incompatible: exit status 1 for the pipeline, and the control plane refuses it.'
shows 1 sluice schema check order-breaking.json --topic orders.created
shows 1 put order-breaking.json
shows 0 sluice schema list orders.created

echo
echo '== The topic for those who read AsyncAPI.'
shows 0 sluice schema asyncapi orders.created --title Shop
echo
echo 'All as expected.'
