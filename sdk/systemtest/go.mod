module github.com/sluice-bus/sluice/sdk/systemtest

go 1.26.0

require (
	github.com/sluice-bus/sluice v0.0.0
	github.com/sluice-bus/sluice/sdk v0.0.0
	github.com/sluice-bus/sluice/sdk/exactlyonce/mongostore v0.0.0
	github.com/sluice-bus/sluice/sdk/sluicetest v0.0.0
	go.mongodb.org/mongo-driver/v2 v2.9.3
	go.uber.org/goleak v1.3.0
	pgregory.net/rapid v1.3.0
)

require (
	github.com/coder/websocket v1.8.15 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/klauspost/compress v1.20.3 // indirect
	github.com/xdg-go/pbkdf2 v1.0.0 // indirect
	github.com/xdg-go/scram v1.2.0 // indirect
	github.com/xdg-go/stringprep v1.0.4 // indirect
	github.com/youmark/pkcs8 v0.0.0-20240726163527-a2c0da244d78 // indirect
	golang.org/x/crypto v0.57.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/text v0.42.0 // indirect
)

replace (
	github.com/sluice-bus/sluice => ../..
	github.com/sluice-bus/sluice/sdk => ..
	github.com/sluice-bus/sluice/sdk/exactlyonce/mongostore => ../exactlyonce/mongostore
	github.com/sluice-bus/sluice/sdk/sluicetest => ../sluicetest
)
