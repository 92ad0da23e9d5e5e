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
	// fenceAfter is how long this control plane goes on handing out its part
	// without a Merge. It and the lifetime of a share together are less than
	// the time after which the others take it for gone.
	fenceAfter = 2 * time.Second
	// stepBy is by how much a part has to be wrong to be changed.
	stepBy = 0.05
	// releaseAfter is when a part that nobody asks for is given up.
	releaseAfter = 2 * time.Second
)

// document is what a control plane tells the others.
type document struct {
	Number uint64             `json:"number"`
	Seen   map[string]uint64  `json:"seen"`   // the numbers of the others' documents that it knows
	Topics map[string]portion `json:"topics"` // that it divides
}

// peer is another control plane.
type peer struct {
	document
	here time.Time // when its document was there last
	gone bool      // it is no longer, but its shares may still act
}

// portion is a control plane's part of one topic.
type portion struct {
	Demand float64 `json:"demand"` // in parts of the rate
	Taken  float64 `json:"taken"`  // the part that it may be handing out, or claims

	force   float64 // the part that it may hand out
	claim   float64 // that it will once all others know; 0: none
	claimed uint64  // the document that said so first
	used    time.Time
}

// peers divide topics among the control planes of a store. Each tells in
// documents what it takes; what it wants more it claims first, and has it once
// every other has shown that it knows of the claim and what they all take
// leaves room for it. So the parts never add up to more than 1, however old
// the documents are that one sees.
type peers struct {
	mu     sync.Mutex
	self   string
	number uint64 // of the last document
	// told is when that was made, and merged when the one was that is known to
	// have reached the others.
	told, merged time.Time
	alone        time.Time // since when there are no others; zero: there are
	others       map[string]peer
	topics       map[string]*portion
}

// newPeers makes the part of a control plane that knows of no other yet.
// Numbers go on rising over its restarts.
func newPeers(now time.Time) *peers {
	return &peers{number: uint64(now.UnixNano()), others: map[string]peer{}, topics: map[string]*portion{}}
}

// part is the part of a topic to hand out, when demand is asked for here and
// acting may still be acting here, both in parts of the rate. No other control
// plane had anything of it since idle; zero: one may have.
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
		mine.force, mine.claim, p.alone = 0, 0, time.Time{}
	case len(p.others) == 0:
		mine.force, mine.claim = 1, 0
	default:
		p.bargain(topic, mine)
	}
	mine.Taken = max(mine.force, mine.claim, acting)
	return mine.force, p.alone
}

// bargain moves the part towards what it should be.
func (p *peers) bargain(topic string, mine *portion) {
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
	if target < mine.force-stepBy || target == 0 {
		mine.force, mine.claim = target, 0
		return
	}
	free := max(0, 1-others)
	switch {
	case mine.claim > 0 && known:
		// Whoever claims more than there is gets what the others leave.
		mine.force, mine.claim = max(mine.force, min(mine.claim, free)), 0
	case mine.claim == 0 && min(target, free) > mine.force+stepBy/2 && target > mine.force+stepBy/2:
		mine.claim, mine.claimed = min(target, free), p.number+1
	}
}

// fairPart is what one gets who wants mine, of those who want wants: max-min
// fair, and what nobody wants goes to all who want something.
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

// Export is what the other control planes of the store have to know. Each of
// them hands it to its [Server.Merge].
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

// Merge takes in what the control planes of the store that are alive have
// exported, this one's own under its name self: call it once the last Export is
// where the others find it. One that is no longer in docs is gone. A document
// has to stay for 4 s after its writer could no longer replace it. The error
// names the documents that cannot be read; what was known of their writers
// stays.
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
