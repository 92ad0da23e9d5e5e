sidecar go-exactly-once
go run ./go-exactly-once
