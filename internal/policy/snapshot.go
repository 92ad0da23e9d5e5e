package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// Snapshot is a set of policies, resolved. It is immutable, and safe for concurrent use.
//
// A topic's effective policy is that of the most specific policy that matches it, so there are no
// more of them than policies. They are all made when the snapshot is, and the same topic always
// gets the same pointer from it.
type Snapshot struct {
	exact map[string]*Effective
	globs map[string]*Effective // by literal prefix; "" is '*' or the defaults
	// lengths are those of the prefixes in globs, longest first.
	lengths  []int
	policies []listed // ascending by name
	// letters has the values of topics of dead letters that were asked for: letterValues to *Effective.
	letters sync.Map

	// Of a snapshot of resolved policies; exact and policies are empty then.
	topics   *topics
	prefixes map[string]*Resolved // by name
}

// listed is a policy of a snapshot, and its place in [Snapshot.List].
type listed struct {
	*Policy
	InForce InForce
}

// InForce names a policy that is in force.
type InForce struct {
	Name    string  `json:"name"`
	Version Version `json:"version"`
	Source  string  `json:"source"` // where it came from
}

// NewSnapshot resolves policies; source is their source. The error is a *[wire.Error] that lists
// every name given twice, and every combination of fields that inheritance makes invalid.
func NewSnapshot(policies []Policy, source string) (*Snapshot, error) {
	s, bad := resolve(policies)
	if len(bad) > 0 {
		return nil, refusal(bad)
	}
	policies = slices.Clone(policies)
	slices.SortFunc(policies, func(a, b Policy) int { return cmp.Compare(a.Name, b.Name) })
	s.policies = make([]listed, len(policies))
	for i := range policies {
		s.policies[i] = policies[i].listed(source)
	}
	return s, nil
}

func (p *Policy) listed(source string) listed {
	return listed{p, InForce{Name: p.Name, Version: Version{hash: p.Version()}, Source: source}}
}

// Topic returns the values of a topic. They are shared: read only. A topic of dead letters has the
// values of its name, but the retention that its topic's policy has for dead letters.
func (s *Snapshot) Topic(name string) *Effective {
	topic, letters := strings.CutSuffix(name, wire.DeadLetterSuffix)
	if !letters {
		return s.named(name)
	}
	values := letterValues{s.named(name), s.Topic(topic).Retention.DeadLetters}
	if e, known := s.letters.Load(values); known {
		return e.(*Effective)
	}
	e := new(*values.of)
	e.Retention = Retention{TTL: values.keep, Expired: ExpiredDrop, DeadLetters: values.keep}
	shared, _ := s.letters.LoadOrStore(values, e)
	return shared.(*Effective)
}

// letterValues are what the values of a topic of dead letters are made of. There are no more of
// them than policies.
type letterValues struct {
	of   *Effective // those of its name
	keep time.Duration
}

// named returns the values of the policies that match a name.
func (s *Snapshot) named(name string) *Effective {
	if e := s.own(name); e != nil {
		return e
	}
	return s.byPrefix(name)
}

// own returns the values of a topic with a policy of its own; nil: it has none.
func (s *Snapshot) own(topic string) *Effective {
	if s.topics == nil {
		return s.exact[topic]
	}
	if p := s.topics.find(topic); p != nil {
		return p.Effective
	}
	return nil
}

// Names reports whether a policy has that name.
func (s *Snapshot) Names(topic string) bool { return s.own(topic) != nil }

// Retention returns the retention of the topics of a policy's name, with or without such a policy:
// the topic of that name, or those with its prefix that no more specific policy names.
func (s *Snapshot) Retention(name string) Retention {
	if prefix, glob := strings.CutSuffix(name, "*"); glob {
		return s.byPrefix(prefix).Retention
	}
	return s.Topic(name).Retention
}

// Connection returns the limit of each connection, which only the policy '*' has.
func (s *Snapshot) Connection() Rate { return s.globs[""].Connection }

// List names the policies in force, by name.
func (s *Snapshot) List() []InForce {
	list := s.resolved()
	for _, p := range s.policies {
		list = append(list, p.InForce)
	}
	slices.SortFunc(list, func(a, b InForce) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

func (s *Snapshot) byPrefix(name string) *Effective {
	for _, n := range s.lengths {
		if n <= len(name) {
			if e, ok := s.globs[name[:n]]; ok {
				return e
			}
		}
	}
	panic("policy: a snapshot without the empty prefix")
}

// resolve computes every policy's effective values. It returns the mistakes in the policies, if
// there are any.
func resolve(policies []Policy) (*Snapshot, []wire.FieldError) {
	s := &Snapshot{
		exact:   map[string]*Effective{},
		globs:   map[string]*Effective{"": new(Defaults())},
		lengths: []int{0},
	}
	order, bad := inOrder(policies)
	bad = append(bad, s.add(order)...)
	return s, bad
}

// placed is a policy, and its index in a document; -1: it is in none.
type placed struct {
	*Policy
	place int
}

// at is the policy's name in errors.
func (p placed) at() string {
	if p.place < 0 {
		return fmt.Sprintf("policies[%q]", p.Name)
	}
	return fmt.Sprintf("policies[%d]", p.place)
}

// specific ranks names: the longer the prefix, the higher, and exact names highest.
func specific(p placed) int {
	if prefix, glob := p.prefix(); glob {
		return len(prefix)
	}
	return wire.MaxTopicBytes + 1
}

// inOrder returns the policies, shortest prefix first and exact names last, and a field error for
// each name that is given twice.
func inOrder(policies []Policy) (order []placed, bad []wire.FieldError) {
	first := make(map[string]int, len(policies))
	order = make([]placed, 0, len(policies))
	for i := range policies {
		p := &policies[i]
		if p.Name == "" {
			continue // refused already
		}
		if j, twice := first[p.Name]; twice {
			bad = append(bad, fieldError(p.line, fmt.Sprintf("policies[%d].name", i),
				fmt.Sprintf("%q is the name of policies[%d] already", p.Name, j)))
			continue
		}
		first[p.Name] = i
		order = append(order, placed{p, i})
	}
	slices.SortStableFunc(order, func(a, b placed) int { return specific(a) - specific(b) })
	return order, bad
}

// add computes the effective values of policies, each from those of the next less specific one,
// which has to come before it.
func (s *Snapshot) add(order []placed) (bad []wire.FieldError) {
	merged := 0
	doubtful := map[*Effective]bool{} // built on a refused policy: relations mean nothing
	for _, p := range order {
		prefix, glob := p.prefix()
		parent := s.byPrefix(prefix)
		e := new(*parent)
		p.applyTo(e)
		if merged += p.Merged(e); merged > MaxMergedBytes {
			return append(bad, fieldError(p.line, join(p.at(), "groups"), fmt.Sprintf(
				"the groups and weights of the policies, with inherited ones, have more than %d bytes", MaxMergedBytes)))
		}
		if p.bad || doubtful[parent] {
			doubtful[e] = true
		} else {
			for _, f := range relations(p.Policy, e) {
				f.Field = join(p.at(), f.Field)
				bad = append(bad, f)
			}
		}
		if !glob {
			s.exact[p.Name] = e
			continue
		}
		s.globs[prefix] = e
		if i, there := slices.BinarySearchFunc(s.lengths, len(prefix), func(n, want int) int { return want - n }); !there {
			s.lengths = slices.Insert(s.lengths, i, len(prefix))
		}
	}
	return bad
}

// relations checks fields that depend on each other, if the policy sets at least one of them: the
// other may be inherited.
func relations(p *Policy, e *Effective) (bad []wire.FieldError) {
	check := func(ok bool, path, other, format string, args ...any) {
		if ok || !p.sets(path) && !p.sets(other) {
			return
		}
		if !p.sets(path) {
			path = other
		}
		bad = append(bad, fieldError(p.line, path, fmt.Sprintf(format, args...)))
	}
	const burst = "with a rate of %v the burst must be at least 1, not %d (unset fields are inherited)"
	check(e.Publish.Rate == 0 || e.Publish.Burst >= 1, "publish.burst", "publish.rate", burst, e.Publish.Rate, e.Publish.Burst)
	check(e.Connection.Rate == 0 || e.Connection.Burst >= 1, "connection.burst", "connection.rate",
		burst, e.Connection.Rate, e.Connection.Burst)
	b := e.Delivery.Backoff
	check(b.Min <= b.Max, "delivery.backoff.min", "delivery.backoff.max",
		"min %v is more than max %v (unset fields are inherited)", b.Min, b.Max)
	if topic, letters := strings.CutSuffix(p.Name, wire.DeadLetterSuffix); letters {
		for i, f := range fields {
			if p.set.has(i) && strings.HasPrefix(f.path, "retention.") {
				bad = append(bad, fieldError(p.line, f.path, fmt.Sprintf(
					"dead letters are kept for retention.dead_letters of the policy of their topic, %q: set that", topic)))
			}
		}
	}
	return bad
}

// Version is a short hash of the policy's content, independent of its spelling.
func (p *Policy) Version() string {
	var text strings.Builder
	fmt.Fprintf(&text, "name=%q\n", p.Name)
	for i, f := range fields {
		if p.set.has(i) {
			fmt.Fprintf(&text, "%s=%#v\n", f.path, f.get(&p.values))
		}
	}
	sum := sha256.Sum256([]byte(text.String()))
	return hex.EncodeToString(sum[:6])
}
