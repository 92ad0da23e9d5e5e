package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync/atomic"
	"time"

	"github.com/sluice-bus/sluice/bench/internal/load"
	"github.com/sluice-bus/sluice/bench/scenarios"
	"github.com/sluice-bus/sluice/internal/launch"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// A peer is a system that the scenarios load.
type peer struct {
	name, durability string
	version          func() string // of the server, once it has run
	missing          string        // why it is not measured; "": it is
	publishes        bool          // it does nothing else
	start            func(ctx context.Context, dir string) (scenarios.System, error)
}

// jobs are the rows of a peer.
func (p *peer) jobs(lab *scenarios.Lab) []*scenarios.Job {
	own := *lab
	own.Start = func(ctx context.Context) (scenarios.System, error) {
		dir, err := os.MkdirTemp(lab.Dir, "peer-*")
		if err != nil {
			return nil, err
		}
		return p.start(ctx, dir)
	}
	rows := scenarios.Jobs(&own, portable(), p.name, p.durability)
	for _, j := range rows {
		switch {
		case p.missing != "":
			j.Row.Skipped = p.missing
		case p.publishes && j.Row.Scenario != "publish":
			j.Row.Skipped = "it delivers nothing"
		}
	}
	return rows
}

// notInstalled says that a program is missing; "": it is there.
func notInstalled(name string) string {
	if _, err := exec.LookPath(name); err != nil {
		return name + " is not installed"
	}
	return ""
}

// messageIDs makes ids of one run.
var messageIDs atomic.Int64

// A broker is a peer that runs.
type broker struct {
	processes []int
	stop      func() error // what the round began
	publisher func(context.Context, load.Publishing) (load.Carrier, error)
	consumer  func(context.Context, load.Consuming) (load.Source, error)
}

// Publishing is a load of a fresh topic. What the transport is makes no difference to a peer.
func (b broker) Publishing(p scenarios.Params) load.Publishing {
	return load.Publishing{
		Topic: load.FreshName("peer"), Size: p.Size, Connections: p.Connections, Depth: p.Depth, Batch: p.Batch, Rate: p.Rate, Transport: "its own client",
		Open: b.publisher,
	}
}

// Consuming is one consumer of a fresh topic.
func (b broker) Consuming(p scenarios.Params) load.Consuming {
	return load.Consuming{
		Topic: load.FreshName("peer"), Group: "bench", From: wire.FromEarliest, Events: p.Events, Connections: 1, Window: 1000, MaxBatch: p.Frame,
		Patience: 30 * time.Second, Open: b.consumer,
	}
}

func (b broker) Processes() []int { return b.processes }
func (b broker) Close() error     { return b.stop() }

func (broker) Appends(context.Context) (int64, time.Duration, error) { return 0, 0, nil }

// self starts this program again, for a server that is a library.
func self(ctx context.Context, dir string, args ...string) (*launch.Program, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return launch.Start(ctx, dir, nil, path, args...)
}

// daemon starts a server that prints no ready line: a shell's line stands for it once the server is ready.
func daemon(ctx context.Context, dir string, env []string, ready func() bool, name string, args ...string) (*launch.Program, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return nil, err
	}
	// The shell prints the line, and becomes the server: one process, whose CPU is the server's.
	shell := append([]string{"-c", `echo '{"ready":true}'; exec "$0" "$@" >&2`, path}, args...)
	program, err := launch.Start(ctx, dir, env, "/bin/sh", shell...)
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(time.Minute); !ready(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) || program.Ended() {
			return nil, errors.Join(fmt.Errorf("%s is not ready", name), program.Stop())
		}
	}
	return program, nil
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// listens reports whether somebody listens there.
func listens(address string) bool {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}
