// Heartbeat turns a stream of heartbeats into the state of each process. It has three programs, and
// each of them is killed on the way. heartbeat.received becomes process.state. A program that needs
// the states starts with the latest one of each process.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"time"

	sluice "github.com/sluice-bus/sluice/sdk"
)

const (
	heartbeats = "heartbeat.received"
	states     = "process.state"
)

func main() {
	role := flag.String("role", "", "be the `emitter`, projector or viewer; the example starts them itself")
	dir := flag.String("snapshots", "", "with -role projector: the `folder` of its snapshots")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := sluice.Dial(ctx, cmp.Or(os.Getenv("SLUICE_URL"), "http://127.0.0.1:7070"))
	if err != nil {
		log.Fatal(err)
	}
	switch *role {
	case "emitter":
		err = emit(ctx, client)
	case "projector":
		err = project(ctx, client, *dir)
	case "viewer":
		err = view(ctx, client)
	case "":
		err = run(ctx, client)
	default:
		err = fmt.Errorf("-role %s: emitter, projector and viewer are allowed", *role)
	}
	if err != nil {
		log.Fatal(err)
	}
	if err := client.Drain(ctx); err != nil {
		log.Fatal(err)
	}
}
