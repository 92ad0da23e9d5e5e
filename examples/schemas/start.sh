if [ ! -x "$bin/sluice" ]; then # only the servers are built
  go build -o "$work/sluice" ../sdk/cmd/sluice
fi
PATH=$(cd "$bin" && pwd):$work:$PATH
export PATH
controlplane
sidecar schemas --control-plane "$xds"
(cd schemas && ./demo.sh)
