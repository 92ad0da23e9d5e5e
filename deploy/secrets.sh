#!/usr/bin/env bash
# Creates the secrets of a deployment in a folder: an authority, certificates for the control plane and for the sidecars of each
# application, tokens, and the files for --auth-config with these.
#
#   deploy/secrets.sh FOLDER APP...
#
# APP is NAME[:NODE-ID[:DNS-NAME]]: the name of an application; the node ids of its sidecars, one or a prefix followed by *; and
# the name by which other sidecars reach them, which may be a wildcard. NODE-ID and DNS-NAME default to NAME. Name all
# applications each time: the control plane's file has only these.
#
# Existing files are kept, so the script may run again; to replace a file, delete it first. Certificates are replaced in the last
# 30 of their 365 days. The files for --auth-config have only digests of tokens. Other users cannot open the folder, but most files
# in it are readable, since the programs in the containers run as another user (65532) and get the files one by one. Sidecars warn
# of that. Files that begin with mongodb or store are only for compose/. Only this script needs ca.key: keep it elsewhere.
set -euo pipefail
if [ $# -lt 2 ]; then
  echo "usage: $0 FOLDER APP[:NODE-ID[:DNS-NAME]]..." >&2
  exit 2
fi
mkdir -p "$1"
chmod 700 "$1"
cd "$1"
shift
umask 022

# token NAME: creates a token, if there is none.
token() {
  [ -s "$1" ] || openssl rand -hex 32 > "$1"
}

digest() { tr -d '\n' < "$1" | openssl dgst -sha256 -r | cut -d' ' -f1; }

# certificate NAME DNS-NAME...: creates NAME.pem and NAME.key, if they are missing or expire soon.
certificate() {
  local name=$1 names="DNS:localhost,IP:127.0.0.1"
  shift
  for dns in "$@"; do names="DNS:$dns,$names"; done
  if [ -s "$name.key" ] && openssl x509 -in "$name.pem" -noout -checkend 2592000 > /dev/null 2>&1; then return; fi
  openssl ecparam -name prime256v1 -genkey -noout -out "$name.key.new"
  openssl req -new -key "$name.key.new" -subj "/CN=$name" -out "$name.csr"
  printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth,clientAuth\n' "$names" > "$name.ext"
  openssl x509 -req -in "$name.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days 365 -sha256 -extfile "$name.ext" -out "$name.pem.new" 2> /dev/null
  chmod 644 "$name.key.new"
  mv "$name.key.new" "$name.key"
  mv "$name.pem.new" "$name.pem"
  rm -f "$name.csr" "$name.ext"
}

if [ ! -s ca.key ]; then
  (umask 077 && openssl ecparam -name prime256v1 -genkey -noout -out ca.key)
  openssl req -x509 -new -key ca.key -sha256 -days 3650 -subj "/CN=Sluice fleet CA" -out ca.pem
fi
# store USER DATABASE: the password of a database user, and the setting with it, for the servers of compose.yaml.
store() {
  token "mongodb-$1"
  echo "store: mongodb://$1:$(cat "mongodb-$1")@mongo1,mongo2,mongo3/$2?replicaSet=rs0" > "store-$1.yaml.new"
  mv "store-$1.yaml.new" "store-$1.yaml"
}

token monitoring # Prometheus
token admin      # people, to the control plane
token mongodb-admin # who makes the database's users
store sidecar sluice
store controlplane controlplane
# The key of the database's servers: at most 1,024 characters of base64.
[ -s mongodb.key ] || (umask 077 && openssl rand -base64 756 > mongodb.key)
certificate controlplane controlplane sluice-controlplane sluice-controlplane.sluice.svc sluice-controlplane-xds.sluice.svc

cat > controlplane-auth.yaml.new <<EOF
tls: {cert: tls.pem, key: tls.key}
tokens:
  - name: monitoring
    role: viewer
    sha256: $(digest monitoring)
  - name: admin
    role: admin
    sha256: $(digest admin)
EOF
for app in "$@"; do
  IFS=: read -r name node dns <<< "$app"
  token "$name-app"     # the application, to its sidecar
  token "$name-sidecar" # its sidecars, to the control plane
  certificate "$name" sluice-sidecar "${dns:-$name}"
  # ca.pem and sidecar, which is NAME-sidecar here, are beside the file where it is used.
  cat > "$name-auth.yaml.new" <<EOF
tls: {cert: tls.pem, key: tls.key}
control_plane: {ca: ca.pem, token_file: sidecar}
peers: {ca: ca.pem}
tokens:
  - name: $name
    sha256: $(digest "$name-app")
    publish: ["*"]
    subscribe: ["*"]
    replay: ["*"]
  - name: monitoring
    sha256: $(digest monitoring)
    ops: true
EOF
  cat >> controlplane-auth.yaml.new <<EOF
  - name: $name
    role: sidecar
    sidecar: "${node:-$name}"
    sha256: $(digest "$name-sidecar")
EOF
  # Each in one step, for programs that read the files at this moment.
  mv "$name-auth.yaml.new" "$name-auth.yaml"
done
mv controlplane-auth.yaml.new controlplane-auth.yaml
