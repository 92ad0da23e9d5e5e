// Package scenarios is what the bench measures, one scenario a file: a value of Scenario in the list All, and the function that
// runs one round of it. A scenario that uses nothing but System runs beside other systems, too (bench/peers).
package scenarios

import (
	"context"
	"time"

	"github.com/sluice-bus/sluice/bench/internal/load"
	"github.com/sluice-bus/sluice/bench/report"
)

// A Scenario is one question to a node.
type Scenario struct {
	Name string
	// Asks is the question in a sentence.
	Asks string
	// Cases are measured one after another, and all rounds in turn.
	Cases []Case
	// Uses are the parameters that change something, by the names that a file has for them.
	Uses []string
	// Default is true where a run without names has it.
	Default bool
	// Needs are what it cannot do without.
	Needs Needs
	// Run measures one round of a case.
	Run func(ctx context.Context, lab *Lab, p Params) (*report.Round, error)
}

// Needs are what a scenario cannot do without.
type Needs struct {
	// Own is true where it starts its sidecars itself: it cannot load one that runs.
	Own bool
	// Shared is true where several sidecars use one store: it has to be a MongoDB.
	Shared bool
	// Sidecars is how many it starts at least.
	Sidecars int
	// Paused is true where it stops the processes of the store for a while.
	Paused bool
}

// Missing says why a lab cannot run it; "": it can.
func (n Needs) Missing(lab *Lab) string {
	switch {
	case n.Own && lab.Target != "":
		return "it starts its own sidecars, which --target forbids"
	case n.Paused && (lab.Store == "" || len(lab.StorePIDs) == 0):
		return "it stops the store for a while: give --store mongodb://… and --store-pids, where MongoDB runs on this machine"
	case n.Shared && lab.Store == "":
		return "its sidecars share a store: give --store mongodb://…"
	}
	return ""
}

// A Case is one row of the result.
type Case struct {
	Name   string `json:"name" yaml:"name"`
	Params `yaml:",inline"`
}

// Params are the parameters of a case. What is 0 or empty has the scenario's default.
type Params struct {
	Transport   string  `json:"transport,omitempty" yaml:"transport"`
	Connections int     `json:"connections,omitempty" yaml:"connections"`
	Depth       int     `json:"depth,omitempty" yaml:"depth"` // requests of a connection that wait for their answer
	Batch       int     `json:"batch,omitempty" yaml:"batch"` // events of a request
	Frame       int     `json:"frame,omitempty" yaml:"frame"` // events of a delivery, and ids of an ack
	Size        int     `json:"size,omitempty" yaml:"size"`   // bytes of a payload
	Keys        int     `json:"keys,omitempty" yaml:"keys"`   // different keys; 0: none
	Topics      int     `json:"topics,omitempty" yaml:"topics"`
	Groups      int     `json:"groups,omitempty" yaml:"groups"`
	Sidecars    int     `json:"sidecars,omitempty" yaml:"sidecars"`
	Events      int     `json:"events,omitempty" yaml:"events"`
	Rate        float64 `json:"rate,omitempty" yaml:"rate"` // events a second, each at its time; 0: as fast as it goes
}

// A System takes publishes and hands out events: a sidecar, or a peer.
type System interface {
	// Publishing and Consuming are loads of it, whose connections are not open.
	Publishing(p Params) load.Publishing
	Consuming(p Params) load.Consuming
	// Processes are those that do the work.
	Processes() []int
	// Appends are how many writes of its log were made so far, and how long they took together; none where it does not say.
	Appends(ctx context.Context) (n int64, took time.Duration, err error)
	Close() error
}

// All are the scenarios.
func All() []*Scenario {
	return []*Scenario{
		&publish, &subscribe, &roundtrip, &fanout, &topics, &keys, &connections, &backpressure, &limits, &replay, &export, &scale,
		&takeover, &spool, &rivals, &soak, &raw,
	}
}

// Named returns the scenario with that name; nil: there is none.
func Named(name string) *Scenario {
	for _, s := range All() {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// Names are the names of all scenarios.
func Names() (names []string) {
	for _, s := range All() {
		names = append(names, s.Name)
	}
	return names
}

// What loads of each kind use.
var (
	publishUses = []string{"transport", "connections", "depth", "batch", "size", "keys", "topics", "rate"}
	rateUses    = []string{"rate", "size", "keys", "frame", "batch", "transport"} // those of atRate
	readUses    = []string{"events", "size", "keys"}
)

// WithDefaults returns the parameters with what the case leaves open.
func (p Params) WithDefaults(size int) Params {
	set := func(field *int, value int) {
		if *field == 0 {
			*field = value
		}
	}
	set(&p.Connections, 1)
	set(&p.Depth, 1)
	set(&p.Batch, 1)
	set(&p.Frame, 1)
	set(&p.Size, size)
	if p.Transport == "" {
		p.Transport = load.TransportWS
	}
	return p
}
