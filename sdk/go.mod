module github.com/sluice-bus/sluice/sdk

go 1.24

require (
	github.com/coder/websocket v1.8.15
	github.com/google/uuid v1.6.0
)
