controlplane
sidecars=()
for node in north south west; do
  sidecar "$node" --control-plane "$xds"
  sidecars+=("$node=$SLUICE_URL")
done
go run ./fleet-limits "$SLUICE_CONTROL_PLANE_URL" "${sidecars[@]}"
