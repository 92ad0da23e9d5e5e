package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/internal/terminal"
	"github.com/sluice-bus/sluice/sdk/cmd/sluice/internal/demo"
)

type demoCommand struct {
	Open bool `help:"Open the console in the browser, where there is a terminal and a browser."`
}

func (*demoCommand) Help() string {
	return `Starts a control plane and a sidecar, and runs a shop on them: orders, payments,
shipping and mail. The load goes up and down, mail is slow, and every five
minutes a bad deployment of payments makes dead letters, which are redriven.
With --store mongodb://HOST/DATABASE three sidecars share that MongoDB, in which
the events stay. All else is removed when Ctrl-C ends the demo.

It uses sluice-sidecar and sluice-controlplane beside this program or on PATH,
and free ports where the usual ones are taken.

Examples:

  sluice demo
  sluice demo --store mongodb://127.0.0.1:27017/sluice_demo --open`
}

// Run runs the demo until ctx ends.
func (d *demoCommand) Run(ctx context.Context, app *program.App, c *client) (err error) {
	if err := checkDemoStore(c.Store); err != nil {
		return err
	}
	node, err := demo.Start(ctx, c.Store)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, node.Stop()) }()
	if err := d.introduce(app, c, node); err != nil {
		return err
	}
	say := func(format string, args ...any) {
		if terminal.Is(app.Stdout) && !c.Output.isDocument() {
			fmt.Fprintf(app.Stdout, time.Now().Format(time.TimeOnly)+"  "+format+"\n", args...)
		}
	}
	watched, stop := node.Watch(ctx)
	defer stop()
	err = demo.Run(watched, node.Sidecars, demo.Usual, say)
	if ctx.Err() != nil {
		return nil
	}
	return errors.Join(context.Cause(watched), err)
}

// checkDemoStore refuses what is no database of MongoDB. The database is not left to the default, which is that of sidecars.
func checkDemoStore(store string) error {
	if store == "" {
		return nil
	}
	scheme, rest, _ := strings.Cut(store, "://")
	if scheme != "mongodb" && scheme != "mongodb+srv" {
		return program.Usagef("--store: the demo takes a MongoDB, as mongodb://127.0.0.1:27017/sluice_demo")
	}
	hosts, _, _ := strings.Cut(rest, "?")
	if _, database, _ := strings.Cut(hosts, "/"); database == "" {
		return program.Usagef("--store names no database, as /sluice_demo behind the hosts: the demo's events stay there")
	}
	return nil
}

// introduce says where everything is and what to look at, and opens the console.
func (d *demoCommand) introduce(app *program.App, c *client, node *demo.Node) error {
	if c.Output.isDocument() {
		return c.Output.write(app.Stdout, map[string]any{"ready": true, "console": node.Console, "sidecars": node.Sidecars})
	}
	sidecars := "a sidecar with an embedded log"
	if len(node.Sidecars) > 1 {
		sidecars = fmt.Sprintf("%d sidecars that share a MongoDB", len(node.Sidecars))
	}
	_, err := fmt.Fprintf(app.Stdout, introduction, sidecars, node.Console, strings.Join(node.Sidecars, " "), demoFlags(node))
	if d.Open && err == nil && terminal.Is(app.Stdout) {
		openInBrowser(node.Console, app.Stderr)
	}
	return err
}

const introduction = `A shop on %s, and a control plane.

  console    %s
  sidecars   %s

  orders     publishes orders.placed: 2 to 30 a second, up and down in two minutes; the topic's limit is 25
  payments   consumes orders.placed, publishes payments.taken; in a minute, and then every five, a bad deployment
             makes it fail for 30 s: dead letters, which are redriven 15 s after it
  shipping   consumes payments.taken, publishes parcels.sent
  mail       consumes orders.placed, slowly: its lag grows at the peak

Look at the topics in the console, and try in another terminal:

  sluice groups orders.placed --watch%[4]s
  sluice events parcels.sent --follow%[4]s
  sluice dlq list orders.placed%[4]s
  sluice fleet topics --watch%[4]s

Ctrl-C ends it all and removes the data of these programs.

`

// demoFlags are what commands need to ask the first sidecar where it is not at the usual address.
func demoFlags(node *demo.Node) string {
	if node.Sidecars[0] == defaultURL {
		return ""
	}
	return " --url " + node.Sidecars[0]
}

// openInBrowser opens a URL. Without a desktop it does nothing: some openers would start a browser in this terminal.
func openInBrowser(url string, stderr io.Writer) {
	opener := "xdg-open"
	switch {
	case runtime.GOOS == "darwin":
		opener = "open"
	case os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "":
		return
	}
	cmd := exec.Command(opener, url)
	if err := cmd.Start(); err != nil {
		fmt.Fprintf(stderr, "The browser was not opened: %v\n", err)
		return
	}
	go cmd.Wait() // its status says nothing of use
}
