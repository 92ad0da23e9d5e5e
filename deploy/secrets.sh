#!/usr/bin/env bash
# Makes the tokens of a deployment and the two files for --auth-config that know them, in a folder:
#
#   deploy/secrets.sh FOLDER
#
# Tokens that are there are kept, so it may run again; delete one and run it to have it replaced. The files for
# --auth-config hold digests alone. The folder is closed to other users; the files in it are not, since the programs in the
# containers run under a number of their own (65532) and are handed the files one by one. Sidecars warn of that.
set -euo pipefail
if [ $# != 1 ]; then
  echo "usage: $0 FOLDER" >&2
  exit 2
fi
mkdir -p "$1"
chmod 700 "$1"
cd "$1"
umask 022

# app: the applications; peers: sidecars, to each other's replay API (--peer-token-file says so, no entry needs to);
# monitoring: Prometheus; sidecar: sidecars, to the control plane; admin: people, to the control plane.
for name in app peers monitoring sidecar admin; do
  if [ ! -s "$name" ]; then
    openssl rand -hex 32 > "$name"
  fi
done

digest() { tr -d '\n' < "$1" | openssl dgst -sha256 -r | cut -d' ' -f1; }

cat > sidecar-auth.yaml.new <<EOF
tokens:
  - name: app
    sha256: $(digest app)
    publish: ["*"]
    subscribe: ["*"]
    replay: ["*"]
  - name: monitoring
    sha256: $(digest monitoring)
    ops: true
EOF
cat > controlplane-auth.yaml.new <<EOF
tokens:
  - name: sidecar
    role: sidecar
    sha256: $(digest sidecar)
  - name: monitoring
    role: viewer
    sha256: $(digest monitoring)
  - name: admin
    role: admin
    sha256: $(digest admin)
EOF
# In one step each, for programs that read them at this moment.
mv sidecar-auth.yaml.new sidecar-auth.yaml
mv controlplane-auth.yaml.new controlplane-auth.yaml
