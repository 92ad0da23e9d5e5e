package quota

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// fenceAfter is how long this control plane goes on handing out its part without a Merge.
	// Together with the lifetime of a share it is less than the time after which the others treat
	// this control plane as gone.
	fenceAfter = 2 * time.Second
	// stepBy is the least difference by which a part is changed.
	stepBy = 0.05
	// releaseAfter is how long an unused part is kept.
	releaseAfter = 2 * time.Second
)

// document is what a control plane tells the others.
type document struct {
	Number uint64             `json:"number"`
	Seen   map[string]uint64  `json:"seen"`   // the numbers of the others' documents that it has merged
	Topics map[string]portion `json:"topics"` // the topics that it divides
}

// peer is another control plane.
type peer struct {
	document
	here time.Time // when its document was last there
	gone bool      // its document is gone, but its shares may still act
}

// portion is a control plane's part of one topic.
type portion struct {
	Demand float64 `json:"demand"` // as a part of the rate
	Taken  float64 `json:"taken"`  // the part that it may be handing out, or claims

	inForce float64 // the part that it may hand out
	claim   float64 // the part that it may hand out once all others know; 0: none
	claimed uint64  // the first document with the claim
	used    time.Time
}

// peers divides topics among the control planes of a store. Each control plane writes its parts
// into its document. It claims a larger part first, and may hand it out once every other control
// plane has shown that it knows of the claim, as far as the others' parts leave room. So the parts
// never add up to more than 1, however old the documents are that a control plane sees.
type peers struct {
	mu     sync.Mutex
	self   string
	number uint64 // of the last document
	// told is when the last document was made, and merged when the last document that is known to
	// have reached the others was made.
	told, merged time.Time
	alone        time.Time // since when there are no others; zero: there are others
	others       map[string]peer
	topics       map[string]*portion
}

// newPeers makes the peers of a control plane that knows of no other yet. Document numbers begin
// with the time, so they rise over restarts too.
func newPeers(now time.Time) *peers {
	return &peers{number: uint64(now.UnixNano()), others: map[string]peer{}, topics: map[string]*portion{}}
}

// part returns the part of a topic that this control plane may hand out. demand and acting are what
// its sidecars want and may be using, as parts of the rate. Since idle no other control plane has
// handed out any of it; zero: one may have.
func (p *peers) part(topic string, demand, acting float64, now time.Time) (part float64, idle time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	mine := p.topics[topic]
	if mine == nil {
		mine = &portion{}
		p.topics[topic] = mine
	}
	mine.used, mine.Demand = now, min(demand*headroom, 1)
	switch {
	case p.merged.IsZero() || now.Sub(p.merged) > fenceAfter:
		mine.inForce, mine.claim, p.alone = 0, 0, time.Time{}
	case len(p.others) == 0:
		mine.inForce, mine.claim = 1, 0
	default:
		p.adjustPart(topic, mine)
	}
	mine.Taken = max(mine.inForce, mine.claim, acting)
	return mine.inForce, p.alone
}

// adjustPart moves the part towards the fair part.
func (p *peers) adjustPart(topic string, mine *portion) {
	others, known := 0.0, true
	wants := []float64{mine.Demand}
	for _, d := range p.others {
		o := d.Topics[topic]
		others += o.Taken
		if d.gone {
			continue
		}
		wants = append(wants, o.Demand)
		known = known && d.Seen[p.self] >= mine.claimed
	}
	target := fairPart(wants, mine.Demand)
	if target < mine.inForce-stepBy || target == 0 {
		mine.inForce, mine.claim = target, 0
		return
	}
	free := max(0, 1-others)
	switch {
	case mine.claim > 0 && known:
		// A claim of more than there is gets what the others leave.
		mine.inForce, mine.claim = max(mine.inForce, min(mine.claim, free)), 0
	case mine.claim == 0 && min(target, free) > mine.inForce+stepBy/2 && target > mine.inForce+stepBy/2:
		mine.claim, mine.claimed = min(target, free), p.number+1
	}
}

// fairPart returns the part of a control plane that wants mine, where wants has what each wants: by
// max-min fairness, and the rest is divided equally among the control planes that want something.
func fairPart(wants []float64, mine float64) float64 {
	wants = slices.DeleteFunc(wants, func(w float64) bool { return w <= 0 })
	slices.Sort(wants)
	rest, level := 1.0, 1.0
	for i, w := range wants {
		level = rest / float64(len(wants)-i)
		if w >= level {
			break
		}
		rest -= w
		level = 1
	}
	if mine <= 0 || len(wants) == 0 {
		return 0
	}
	sum := 0.0
	for _, w := range wants {
		sum += min(w, level)
	}
	return min(mine, level) + max(0, 1-sum)/float64(len(wants))
}

// Export returns the document for the other control planes of the store. Each of them passes it to
// its [Server.Merge].
func (s *Server) Export() []byte {
	p := s.peers
	p.mu.Lock()
	defer p.mu.Unlock()
	p.number++
	d := document{Number: p.number, Seen: map[string]uint64{}, Topics: map[string]portion{}}
	for name, o := range p.others {
		if !o.gone {
			d.Seen[name] = o.Number
		}
	}
	now := s.cfg.Now()
	p.told = now
	for topic, m := range p.topics {
		if now.Sub(m.used) > releaseAfter {
			delete(p.topics, topic)
			continue
		}
		d.Topics[topic] = *m
	}
	out, err := json.Marshal(d)
	if err != nil {
		panic(err) // finite numbers and strings
	}
	return out
}

// Merge reads the documents that the live control planes of the store have exported, this one's own
// under its name self. Call it once the others can read the last Export. A control plane that is no
// longer in docs is gone. A document has to stay for 4 s after its writer could no longer replace
// it. The error names the documents that cannot be read; their writers' earlier documents stay in
// use.
func (s *Server) Merge(self string, docs map[string][]byte) error {
	p := s.peers
	now := s.cfg.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.self, p.merged = self, p.told
	var bad error
	for name, doc := range docs {
		if name == self {
			continue
		}
		var d document
		if err := json.Unmarshal(doc, &d); err != nil {
			bad = errors.Join(bad, fmt.Errorf("quota document of control plane %q: %w", name, err))
			d = p.others[name].document
		}
		p.others[name] = peer{document: d, here: now}
	}
	for name, o := range p.others {
		if _, here := docs[name]; !here {
			o.gone = true
			p.others[name] = o
		}
		if now.Sub(o.here) > lapse {
			delete(p.others, name)
		}
	}
	switch {
	case len(p.others) > 0:
		p.alone = time.Time{}
	case p.alone.IsZero():
		p.alone = now.Add(lapse)
	}
	return bad
}
