sidecar mongodb-view
go run ./mongodb-view
