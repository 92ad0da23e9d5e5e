sidecar heartbeat-projection --policies heartbeat-projection/policies.yaml
go run ./heartbeat-projection
