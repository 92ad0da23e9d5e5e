module github.com/sluice-bus/sluice/sdk/adapters/sluicewatermill

go 1.25.0

require (
	github.com/ThreeDotsLabs/watermill v1.5.1
	github.com/sluice-bus/sluice/sdk v0.1.0
)

require (
	github.com/coder/websocket v1.8.15 // indirect
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/lithammer/shortuuid/v3 v3.0.7 // indirect
	github.com/oklog/ulid v1.3.1 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	github.com/stretchr/testify v1.11.0 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)
