// The applications of Dapr's SDK for Go, unmodified, at a sidecar: a module of its own, since what they need is for them alone.
module github.com/sluice-bus/sluice/test/dapr

go 1.26.0

require (
	github.com/cloudevents/sdk-go/v2 v2.16.2
	github.com/dapr/dapr v1.14.0
	github.com/dapr/go-sdk v1.11.0
	google.golang.org/grpc v1.65.0
)

require (
	github.com/davecgh/go-spew v1.1.2-0.20180830191138-d8f796af33cc // indirect
	github.com/go-chi/chi/v5 v5.1.0 // indirect
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/gorilla/mux v1.8.1 // indirect
	github.com/json-iterator/go v1.1.12 // indirect
	github.com/modern-go/concurrent v0.0.0-20180306012644-bacd9c7ef1dd // indirect
	github.com/modern-go/reflect2 v1.0.2 // indirect
	github.com/pmezard/go-difflib v1.0.1-0.20181226105442-5d4384ee4fb2 // indirect
	github.com/stretchr/testify v1.11.0 // indirect
	go.opentelemetry.io/otel v1.27.0 // indirect
	go.uber.org/multierr v1.11.0 // indirect
	go.uber.org/zap v1.27.0 // indirect
	golang.org/x/net v0.26.0 // indirect
	golang.org/x/sys v0.21.0 // indirect
	golang.org/x/text v0.16.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20240624140628-dc46fd24d27d // indirect
	google.golang.org/protobuf v1.34.2 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
	k8s.io/apimachinery v0.30.2 // indirect
)

tool (
	github.com/dapr/dapr/tests/apps/pubsub-subscriber
	github.com/dapr/dapr/tests/apps/pubsub-subscriber-routing
	github.com/dapr/dapr/tests/apps/pubsub-subscriber-routing_grpc
	github.com/dapr/dapr/tests/apps/pubsub-subscriber_grpc
)
