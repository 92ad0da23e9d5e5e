module github.com/sluice-bus/sluice/sdk/sluicetest

go 1.26.0

require github.com/sluice-bus/sluice/sdk v0.0.0

require (
	github.com/coder/websocket v1.8.15 // indirect
	github.com/google/uuid v1.6.0 // indirect
)

replace github.com/sluice-bus/sluice/sdk => ..
