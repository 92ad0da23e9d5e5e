package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A use is a module that people import, with a program that does.
type use struct {
	module string
	// brings are all modules that an application gets with it; nil: any.
	brings  []string
	program string
}

const own = "github.com/sluice-bus/sluice"

var uses = []use{
	{module: own + "/sdk", brings: []string{"github.com/coder/websocket", "github.com/google/uuid", own + "/sdk"}, program: `
		package main

		import (
			"context"
			"log"

			sluice "github.com/sluice-bus/sluice/sdk"
		)

		func main() {
			client, err := sluice.Dial(context.Background(), "http://127.0.0.1:7070")
			if err == nil {
				_, err = client.Publish(context.Background(), &sluice.Event{Topic: "orders", Payload: []byte("1")})
			}
			log.Print(err)
		}
	`},
	{module: own + "/sdk/mongo", program: `
		package main

		import (
			"context"
			"log"

			"github.com/sluice-bus/sluice/sdk/mongo/oncestore"
			"github.com/sluice-bus/sluice/sdk/mongo/outbox"
			"github.com/sluice-bus/sluice/sdk/mongo/projector"
			"github.com/sluice-bus/sluice/sdk/mongo/snapshotstore"
			"go.mongodb.org/mongo-driver/v2/mongo"
		)

		func main() {
			client, err := mongo.Connect()
			if err != nil {
				log.Fatal(err)
			}
			shop := client.Database("shop")
			_ = snapshotstore.Store{Collection: shop.Collection("snapshots"), Name: "totals"}
			_ = projector.Config{Topic: "orders", Group: "view", Collection: shop.Collection("view")}
			log.Print(oncestore.New(shop, oncestore.Options{}), outbox.Prepare(context.Background(), shop.Collection("outbox")))
		}
	`},
	{module: own + "/sdk/adapters/sluicewatermill", program: `
		package main

		import (
			"context"
			"log"

			"github.com/ThreeDotsLabs/watermill/message"
			sluice "github.com/sluice-bus/sluice/sdk"
			"github.com/sluice-bus/sluice/sdk/adapters/sluicewatermill"
		)

		func main() {
			client, err := sluice.Dial(context.Background(), "http://127.0.0.1:7070")
			if err == nil {
				publisher := sluicewatermill.NewPublisher(client, sluicewatermill.PublisherConfig{})
				err = publisher.Publish("orders", message.NewMessage("order-1", []byte("1")))
			}
			log.Print(err)
		}
	`},
	{module: own + "/sdk/adapters/sluicepubsub", program: `
		package main

		import (
			"context"
			"log"

			_ "github.com/sluice-bus/sluice/sdk/adapters/sluicepubsub"
			"gocloud.dev/pubsub"
		)

		func main() {
			topic, err := pubsub.OpenTopic(context.Background(), "sluice:///orders")
			log.Print(topic, err)
		}
	`},
	{module: own, program: `
		package main

		import "github.com/sluice-bus/sluice/test/sluicetest"

		func main() {
			sidecar := sluicetest.Start(sluicetest.Options{})
			defer sidecar.Close()
			println(sidecar.URL)
		}
	`},
}

var programs = []string{
	"sidecar/cmd/sluice-sidecar", "controlplane/cmd/sluice-controlplane", "controlplane/cmd/sluice-injector", "bench/cmd/sluice-bench",
	"sdk/cmd/sluice",
}

// check fetches every module and every program, each as somebody with an empty folder does.
func check(ctx context.Context, r release, g goCommand) error {
	for _, u := range uses {
		began := time.Now()
		if err := u.check(ctx, r, g); err != nil {
			return fmt.Errorf("use %s: %w", u.module, err)
		}
		fmt.Printf("%s can be used (%.1f s)\n", u.module, time.Since(began).Seconds())
	}
	for _, program := range programs {
		began := time.Now()
		if _, err := g.run(ctx, os.TempDir(), "install", "-n", own+"/"+program+"@"+r.version()); err != nil {
			return err
		}
		fmt.Printf("%s can be installed (%.1f s)\n", program, time.Since(began).Seconds())
	}
	return nil
}

func (u use) check(ctx context.Context, r release, g goCommand) error {
	dir, err := os.MkdirTemp("", "sluice-use")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(u.program), 0o600); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"mod", "init", "example.org/app"},
		{"get", u.module + "@" + r.version()},
		{"mod", "tidy"},
		{"build", "-gcflags=" + own + "/...=-N -l", "-o", "app", "."}, // nobody runs it, and unoptimized it is compiled sooner
	} {
		if _, err := g.run(ctx, dir, args...); err != nil {
			return err
		}
	}
	if u.brings == nil {
		return nil
	}
	brought, err := g.run(ctx, dir, "list", "-m", "-f", "{{if not .Main}}{{.Path}}{{end}}", "all")
	if err != nil {
		return err
	}
	if got := strings.Fields(string(brought)); !slices.Equal(got, u.brings) {
		return fmt.Errorf("it brings %s, and should bring %s", got, u.brings)
	}
	return nil
}
