package core

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"go.mongodb.org/mongo-driver/v2/event"
)

// topology is what the driver knows of the servers.
type topology struct {
	mu          sync.Mutex
	unsupported error // why the driver can use none of them
	unreached   []string
	hasPrimary  bool // or a server that needs none
	primary     string
	term        context.Context // ends when another server becomes the primary
	endTerm     context.CancelFunc
}

// primaryTerm ends when another server becomes the primary of its replica set.
func (t *topology) primaryTerm() context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.term == nil {
		t.term, t.endTerm = context.WithCancel(context.Background())
	}
	return t.term
}

func (t *topology) refusal() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.unsupported
}

// silent ends the error of an operation without an answer: which servers do not answer, or that none is the primary.
func (t *topology) silent() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.hasPrimary:
		return ""
	case len(t.unreached) == 0:
		return " (the servers of --store have no primary)"
	}
	return " (of the servers of --store there is no answer from " + strings.Join(t.unreached, ", ") + ")"
}

// changed takes the driver's description of the servers. While there is no primary, the last one
// counts.
func (t *topology) changed(e *event.TopologyDescriptionChangedEvent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unsupported = refusalOf(e.NewDescription)
	t.unreached, t.hasPrimary = nil, false
	for _, s := range e.NewDescription.Servers {
		switch s.Kind {
		case "Unknown":
			t.unreached = append(t.unreached, s.Addr.String())
		case "RSPrimary", "Mongos", "Standalone", "LoadBalancer":
			t.hasPrimary = true
		}
		if addr := s.Addr.String(); s.Kind == "RSPrimary" && addr != t.primary {
			t.primary = addr
			if t.endTerm != nil {
				t.endTerm()
				t.term, t.endTerm = nil, nil
			}
		}
	}
}

// OneMember says how a server becomes a replica set.
const OneMember = `to make it a replica set of one, start mongod with --replSet rs0 (or replication.replSetName), ` +
	`and run once: mongosh --eval 'rs.initiate()'`

// wireVersions are the versions of MongoDB that the driver does not talk to, by the wire version
// that they announce.
var wireVersions = map[int32]string{5: "3.4", 6: "3.6", 7: "4.0", 8: "4.2"}

// oldestWireVersion is that of MongoDB 4.4.
const oldestWireVersion = 9

// refusalOf says why the driver uses none of the servers that it has found; nil if it may.
func refusalOf(d event.TopologyDescription) error {
	if d.CompatibilityErr != nil {
		for _, s := range d.Servers {
			if s.Kind != "Unknown" && s.MaxWireVersion < oldestWireVersion {
				return &UnsupportedError{fmt.Sprintf("%s is MongoDB %s, and Sluice needs 4.4 or later (%v)",
					s.Addr, wireVersions[s.MaxWireVersion], d.CompatibilityErr)}
			}
		}
		return &UnsupportedError{d.CompatibilityErr.Error()}
	}
	if len(d.Servers) == 0 { // the driver drops servers that are in no set, or in another one
		return &UnsupportedError{"no server of its URL is a member of the replica set that the URL asks for; if one is on its own: " + OneMember}
	}
	return nil
}
