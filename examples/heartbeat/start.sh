sidecar heartbeat --policies heartbeat/policies.yaml
go run ./heartbeat
