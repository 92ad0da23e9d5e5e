package fleet

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Bounds of the documents that control planes exchange.
const (
	// MaxExport bounds a document; a database takes 16 MiB at most. Beyond it a document leaves out the
	// health of sidecars first, then histories, then topics that exist and reasons of refusals, then acked versions and unmet
	// write concerns, then topics in use, and last the sidecars that left.
	MaxExport = 8 << 20
	// exportedHistories is how many topics, the busiest, have their history in a document.
	exportedHistories = 1_000
	// maxDocument bounds an unpacked document.
	maxDocument = 256 << 20
)

// document is what one control plane tells the others: gob, compressed.
type document struct {
	ControlPlane string
	Sidecars     []instance
	Parts        []*Part // each once
	Topics       []flatTopic
	Existing     []string                    // names of topics
	Refusals     map[string]Refusals         // of sessions, by node id
	Reasons      map[string]map[string]int64 // of refused events in the last hour, by topic and code
}

// flatTopic is a topic in few numbers: there are many topics, every second.
type flatTopic struct {
	Topic   string
	Nodes   []string
	Rates   []float64 // allowed and denied; then, for each node, those and its share
	History []float64 // allowed and denied of each second
}

// noShare stands for no share in flatTopic.Rates.
const noShare = -1

// other is the last document of another control plane.
type other struct {
	name     string
	sidecars []instance
	topics   []Topic
	existing []string
	refusals map[string]Refusals
	reasons  map[string]map[string]int64
	packed   []byte // as it came
	// By node id: its connected sidecars, and those that left with events.
	connected, left map[string]*instance
}

// Export returns the document of this control plane's sidecars for the others.
func (r *Registry) Export() []byte {
	r.mu.Lock()
	d := document{ControlPlane: r.name, Sidecars: r.own(true), Existing: r.existingNames(), Refusals: map[string]Refusals{},
		Reasons: r.refusedByTopic()}
	for node, one := range r.refusals {
		d.Refusals[node] = one.Refusals
	}
	d.share()
	topics := r.ownTopics(false)
	slices.SortFunc(topics, func(a, b Topic) int {
		return cmp.Compare(b.AllowedPerSecond+b.DeniedPerSecond, a.AllowedPerSecond+a.DeniedPerSecond)
	})
	now := r.elapsed(r.now())
	for i := range min(len(topics), exportedHistories) {
		t := &topics[i]
		t.History = r.usage.topics[t.Topic].history.history(now)
	}
	r.mu.Unlock()
	for i := range d.Sidecars {
		d.Sidecars[i].Packed = d.Sidecars[i].health.pack()
	}
	slices.Sort(d.Existing) // which compresses better
	for i := range topics {
		d.Topics = append(d.Topics, flatten(&topics[i]))
	}
	return d.pack(MaxExport)
}

// share puts each part into the document once.
func (d *document) share() {
	place := map[string]int{}
	for i := range d.Sidecars {
		s := &d.Sidecars[i]
		for _, part := range s.parts {
			at, there := place[part.ID]
			if !there {
				at = len(d.Parts)
				place[part.ID] = at
				d.Parts = append(d.Parts, part)
			}
			s.Held = append(s.Held, at)
		}
	}
}

func flatten(t *Topic) flatTopic {
	f := flatTopic{Topic: t.Topic, Rates: []float64{round(t.AllowedPerSecond), round(t.DeniedPerSecond)}}
	for _, u := range t.BySidecar {
		share := float64(noShare)
		if u.SharePerSecond != nil {
			share = *u.SharePerSecond
		}
		f.Nodes = append(f.Nodes, u.NodeID)
		f.Rates = append(f.Rates, round(u.AllowedPerSecond), round(u.DeniedPerSecond), share)
	}
	for _, p := range t.History {
		f.History = append(f.History, round(p.Allowed), round(p.Denied))
	}
	return f
}

// topic is what flatten was given, without Sidecars, which merging fills in.
func (f *flatTopic) topic() (Topic, error) {
	if len(f.Rates) != 2+3*len(f.Nodes) || len(f.History) != 0 && len(f.History) != 2*historySlots {
		return Topic{}, fmt.Errorf("topic %q: %d sidecars with %d rates, and %d numbers of history",
			f.Topic, len(f.Nodes), len(f.Rates), len(f.History))
	}
	t := Topic{Topic: f.Topic, AllowedPerSecond: f.Rates[0], DeniedPerSecond: f.Rates[1]}
	for i, node := range f.Nodes {
		of := f.Rates[2+3*i:]
		u := Usage{NodeID: node, AllowedPerSecond: of[0], DeniedPerSecond: of[1]}
		if of[2] != noShare {
			u.SharePerSecond = &of[2]
		}
		t.BySidecar = append(t.BySidecar, u)
	}
	for i := 0; i < len(f.History); i += 2 {
		t.History = append(t.History, Point{Allowed: f.History[i], Denied: f.History[i+1]})
	}
	return t, nil
}

// pack leaves out as much as the size needs.
func (d *document) pack(limit int) []byte {
	leaveOut := []func(){
		func() {
			for i := range d.Sidecars {
				d.Sidecars[i].Packed = nil
			}
		},
		func() {
			for i := range d.Topics {
				d.Topics[i].History = nil
			}
		},
		func() { d.Existing, d.Reasons = nil, nil },
		func() {
			for i := range d.Sidecars {
				d.Sidecars[i].UnmetConcerns, d.Sidecars[i].Held = nil, nil
			}
			d.Parts = nil
		},
		func() { d.Topics = nil },
		func() {
			d.Sidecars = slices.DeleteFunc(d.Sidecars, func(s instance) bool { return !s.Connected })
		},
	}
	packed := d.encode()
	for _, cut := range leaveOut {
		if len(packed) <= limit {
			break
		}
		cut()
		packed = d.encode()
	}
	return packed
}

func (d *document) encode() []byte {
	var out bytes.Buffer
	pack, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err == nil {
		err = errors.Join(gob.NewEncoder(pack).Encode(d), pack.Close())
	}
	if err != nil {
		panic("fleet: " + err.Error()) // neither the types nor a buffer can fail
	}
	return out.Bytes()
}

// Merge replaces the documents of the other control planes; the one of self is ignored. A document
// that cannot be read is left out, and named in the error.
func (r *Registry) Merge(self string, docs [][]byte) error {
	r.mu.Lock()
	before := r.others
	r.mu.Unlock()
	var others []other
	var bad []error
	for i, packed := range docs {
		o, err := read(packed, before)
		switch {
		case err != nil:
			bad = append(bad, fmt.Errorf("document %d of the control planes: %w", i, err))
		case o.name != self:
			others = append(others, o)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.others = others
	return errors.Join(bad...)
}

// read unpacks a document, unless it is the same as before.
func read(packed []byte, before []other) (other, error) {
	for _, o := range before {
		if bytes.Equal(o.packed, packed) {
			return o, nil
		}
	}
	unpack, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return other{}, err
	}
	text, err := io.ReadAll(io.LimitReader(unpack, maxDocument+1))
	switch {
	case err != nil:
		return other{}, err
	case len(text) > maxDocument:
		return other{}, fmt.Errorf("it unpacks to more than %d bytes", maxDocument)
	}
	var d document
	if err := gob.NewDecoder(bytes.NewReader(text)).Decode(&d); err != nil {
		return other{}, err
	}
	o := other{
		name: d.ControlPlane, sidecars: d.Sidecars, topics: make([]Topic, len(d.Topics)), existing: d.Existing,
		refusals: d.Refusals, reasons: d.Reasons, packed: slices.Clone(packed), connected: map[string]*instance{}, left: map[string]*instance{},
	}
	for i := range o.sidecars {
		s := &o.sidecars[i]
		switch {
		case s.Connected:
			o.connected[s.NodeID] = s
		case !s.Drained:
			o.left[s.NodeID] = s
		}
		for _, at := range s.Held {
			if at < 0 || at >= len(d.Parts) || d.Parts[at] == nil {
				return other{}, fmt.Errorf("sidecar %q has part %d of %d", s.NodeID, at, len(d.Parts))
			}
			s.parts = append(s.parts, d.Parts[at])
		}
		if s.health, err = s.Packed.unpack(); err != nil {
			return other{}, err
		}
	}
	for i := range d.Topics {
		if o.topics[i], err = d.Topics[i].topic(); err != nil {
			return other{}, err
		}
	}
	return o, nil
}
