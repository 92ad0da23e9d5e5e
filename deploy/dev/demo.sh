#!/usr/bin/env bash
# Runs `sluice demo` with three sidecars on MongoDB: that of STORE, mongodb://HOST/DATABASE, else the model of a replica set that the
# tests use, in memory. `make demo` builds the programs.
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ -z "${STORE:-}" ]; then
  echo "The database is the tests' model of a MongoDB replica set, in memory. STORE=mongodb://HOST/DATABASE takes a real one." >&2
  # Ctrl-C does not reach the model. It ends with its standard input, which the demo holds open: so it ends last, and always.
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  mkfifo "$scratch/ready"
  exec 9> >(trap '' INT; exec bin/mongomodel >"$scratch/ready" 2>/dev/null)
  read -r ready <"$scratch/ready"
  rm -rf "$scratch"
  uri=${ready#*\"uri\":\"}
  uri=${uri%\"*}
  STORE=${uri/\/\?//sluice_demo?}
fi
exec bin/sluice demo --open --store "$STORE"
