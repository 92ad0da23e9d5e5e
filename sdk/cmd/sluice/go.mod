module github.com/sluice-bus/sluice/sdk/cmd/sluice

go 1.26.0

require (
	github.com/alecthomas/kong v1.17.0
	github.com/sluice-bus/sluice v0.0.0
	github.com/sluice-bus/sluice/sdk v0.0.0
	github.com/sluice-bus/sluice/sdk/sluicetest v0.0.0
	go.uber.org/goleak v1.3.0
	go.yaml.in/yaml/v3 v3.0.6
	golang.org/x/term v0.47.0
	pgregory.net/rapid v1.3.0
)

require (
	github.com/coder/websocket v1.8.15 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.42.0 // indirect
)

replace (
	github.com/sluice-bus/sluice => ../../..
	github.com/sluice-bus/sluice/sdk => ../..
	github.com/sluice-bus/sluice/sdk/sluicetest => ../../sluicetest
)
