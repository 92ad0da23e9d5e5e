package demo

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sluice-bus/sluice/internal/launch"
)

//go:embed policies.yaml
var policies []byte

// Node is the programs that the shop runs on: a control plane, and one sidecar with an embedded log, or three that share a MongoDB.
type Node struct {
	Console  string   // the URL of the control plane
	Sidecars []string // the URLs of the sidecars' app APIs

	dir      string
	programs []*launch.Program // the control plane first
}

// Start starts the programs, with their data in a temporary folder. store is the URL of a MongoDB, or "". The first sidecar and the
// control plane are at their usual addresses where these are free.
func Start(ctx context.Context, store string) (*Node, error) {
	dir, err := os.MkdirTemp("", "sluice-demo-")
	if err != nil {
		return nil, err
	}
	n := &Node{dir: dir}
	if err := n.start(ctx, store); err != nil {
		return nil, errors.Join(err, n.Stop())
	}
	return n, nil
}

func (n *Node) start(ctx context.Context, store string) error {
	seed := filepath.Join(n.dir, "policies.yaml")
	if err := os.WriteFile(seed, policies, 0o600); err != nil {
		return err
	}
	plane, err := n.launch(ctx, "sluice-controlplane", nil, listeners{"--http-listen": "7080", "--xds-listen": "18000"},
		"--data-dir", filepath.Join(n.dir, "controlplane"), "--policies", seed)
	if err != nil {
		return err
	}
	n.Console = "http://" + plane.Ready["http"] + "/"
	names, env := []string{"shop"}, []string(nil)
	if store != "" {
		names, env = []string{"shop-1", "shop-2", "shop-3"}, []string{"SLUICE_STORE=" + store} // a list of processes shows no environment
	}
	ports := listeners{"--listen": "7070", "--replay-listen": "8083", "--ops-listen": "7071"}
	for _, name := range names {
		sidecar, err := n.launch(ctx, "sluice-sidecar", env, ports,
			"--node-id", name, "--data-dir", filepath.Join(n.dir, name), "--control-plane", plane.Ready["xds"])
		if err != nil {
			return err
		}
		n.Sidecars = append(n.Sidecars, "http://"+sidecar.Ready["listen"])
		ports = listeners{"--listen": "0", "--replay-listen": "0", "--ops-listen": "0"}
	}
	return nil
}

// listeners are flags and ports of the loopback interface.
type listeners map[string]string

// launch starts a program at these ports, or, where one of them is taken, at free ones.
func (n *Node) launch(ctx context.Context, name string, env []string, at listeners, args ...string) (*launch.Program, error) {
	path, err := launch.Find(name)
	if err != nil {
		return nil, err
	}
	for _, setting := range os.Environ() { // what the user has set for other programs is not meant for these; "" counts as not given
		if name, _, _ := strings.Cut(setting, "="); strings.HasPrefix(name, "SLUICE_") {
			env = append([]string{name + "="}, env...)
		}
	}
	free := slices.Clone(args)
	for flag, port := range at {
		args, free = append(args, flag, "127.0.0.1:"+port), append(free, flag, "127.0.0.1:0")
	}
	program, err := launch.Start(ctx, n.dir, env, path, args...)
	if err != nil && ctx.Err() == nil {
		program, err = launch.Start(ctx, n.dir, env, path, free...)
	}
	if err == nil {
		n.programs = append(n.programs, program)
	}
	return program, err
}

// Watch returns a context that ends with ctx, or when one of the programs ends by itself, which its cause then names.
func (n *Node) Watch(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	for _, p := range n.programs {
		go func() {
			select {
			case <-p.Done():
				cancel(fmt.Errorf("%s (process %d) ended by itself: %s\n%s", p.Name(), p.PID(), p.Status(), p.LastLines()))
			case <-ctx.Done():
			}
		}()
	}
	return ctx, func() { cancel(nil) }
}

// Stop ends the programs, the control plane last, and removes their data.
func (n *Node) Stop() error {
	ended := make(chan error)
	for _, p := range n.programs[min(1, len(n.programs)):] {
		go func() { ended <- p.Stop() }()
	}
	var err error
	for range len(n.programs) - 1 {
		err = errors.Join(err, <-ended)
	}
	if len(n.programs) > 0 {
		err = errors.Join(err, n.programs[0].Stop())
	}
	return errors.Join(err, os.RemoveAll(n.dir))
}
