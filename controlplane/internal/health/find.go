package health

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/internal/health"
)

// The thresholds of incidents. The second of two ends an incident that the first has begun.
const (
	leastRefused, endRefused         = 1.0, 0.5 // events per second
	leastRefusedPart, endRefusedPart = 0.1, 0.05
	diskBelow, diskAbove             = 2.0, 2.2 // times the low-water mark
	memoryAbove, memoryBelow         = 0.9, 0.8 // of the bound
	skewAbove, skewBelow             = 2 * time.Second, time.Second
	givenUpFor                       = time.Minute
	namesShown                       = 3
	skewUnit                         = 100 * time.Millisecond // delays of reports vary
)

func storeAway(f *facts) (out []finding) {
	for _, s := range f.stores {
		if s.unable == 0 {
			continue
		}
		text := fmt.Sprintf("The store does not take events: %s at %s.",
			strings.ReplaceAll(s.State, "_", " "), sidecars(s.unable, len(s.Sidecars)))
		if s.Error != "" {
			text += " The last error: " + s.Error
		}
		about := Subject{Store: s.Store, NodeID: alone(s.Sidecars)}
		out = append(out, finding{Subject: about, since: s.Since, value: float64(s.unable), text: text})
	}
	return out
}

// sidecars says how many of some sidecars.
func sidecars(n, of int) string {
	if of == 1 {
		return "its sidecar"
	}
	return fmt.Sprintf("%d of its %d sidecars", n, of)
}

// alone is the only one of some names, or "".
func alone(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	return ""
}

func spooling(f *facts) (out []finding) {
	for _, s := range f.stores {
		if s.Spooled > 0 {
			out = append(out, finding{
				Subject: Subject{Store: s.Store, NodeID: alone(s.Sidecars)}, since: at(s.oldest), value: float64(s.Spooled),
				text: fmt.Sprintf("%s in the sidecars' spools for the store.", wait(s.Spooled)),
			})
		}
	}
	return out
}

func sidecarMissing(f *facts) (out []finding) {
	for i := range f.members {
		if m := &f.members[i]; m.Missing {
			out = append(out, finding{
				Subject: Subject{NodeID: m.NodeID, Store: m.StoreID}, since: m.LastSeen,
				text: fmt.Sprintf("Sidecar %s is gone, and may have events that no other has.", m.NodeID),
			})
		}
	}
	return out
}

func policyRejected(f *facts) []finding {
	return f.each(func(m *fleet.Member) (finding, bool) {
		if m.Rejected == nil {
			return finding{}, false
		}
		return finding{text: fmt.Sprintf("Sidecar %s refuses policy %s, version %d: %s", m.NodeID, m.Rejected.Policy, m.Rejected.Version,
			m.Rejected.Reason)}, true
	})
}

func groupStuck(f *facts) (out []finding) {
	for k, g := range f.groups {
		if g.StuckSince == 0 || g.Paused {
			continue
		}
		text := fmt.Sprintf("Group %s of %s does not settle its oldest event: ", k.Group.Group, k.Topic)
		switch {
		case g.Members == 0:
			text += fmt.Sprintf("it has no members, and %s.", wait(g.Lag))
		case g.BlockedBy != "":
			text += fmt.Sprintf("%s, %d in flight; the members get nothing: %s.", plural(g.Members, "member"), g.InFlight, g.BlockedBy)
		default:
			text += fmt.Sprintf("%s, %d in flight.", plural(g.Members, "member"), g.InFlight)
		}
		out = append(out, finding{Subject: k.subject(), since: at(g.StuckSince), value: float64(g.Lag), text: text})
	}
	return out
}

func lagGrowing(f *facts) (out []finding) {
	for k, g := range f.groups {
		if g.growing != steady {
			out = append(out, finding{
				Subject: k.subject(), value: float64(g.Lag), between: g.growing != fast,
				text: fmt.Sprintf("Group %s of %s falls behind: %s, and the lag grows.", k.Group.Group, k.Topic, wait(g.Lag)),
			})
		}
	}
	return out
}

func deadLetters(f *facts) (out []finding) {
	for k, g := range f.groups {
		if g.dead.Count == 0 {
			continue
		}
		text := fmt.Sprintf("Group %s has given up %s of %s.", k.Group.Group, plural(g.dead.Count, "event"), k.Topic)
		if k.Group.Group == "" {
			text = fmt.Sprintf("The store has refused %s of %s from a spool.", plural(g.dead.Count, "event"), k.Topic)
		}
		out = append(out, finding{
			Subject: k.subject(), since: at(g.dead.Oldest), value: float64(g.dead.Count), text: text,
		})
	}
	return out
}

func (k groupKey) subject() Subject {
	return Subject{Store: k.store, Topic: k.Topic, Group: k.Group.Group}
}

func refused(f *facts) (out []finding) {
	for topic, p := range f.demand {
		part := p.Denied / max(p.Allowed+p.Denied, 1)
		if p.Denied < endRefused || part < endRefusedPart {
			continue
		}
		out = append(out, finding{
			Subject: Subject{Topic: topic}, value: p.Denied, between: p.Denied < leastRefused || part < leastRefusedPart,
			text: fmt.Sprintf("%.0f of %.0f events a second to %s are over its limit, and refused.", p.Denied, p.Allowed+p.Denied, topic),
		})
	}
	return out
}

func captureStopped(f *facts) []finding {
	return f.sources("capture", func(name string, s health.Source) string {
		if !s.Stopped {
			return ""
		}
		return fmt.Sprintf("The capture of %s has stopped: %s", name, s.State)
	})
}

func outboxFailing(f *facts) []finding {
	return f.sources("outbox", func(name string, s health.Source) string {
		switch {
		case s.Failing:
			return fmt.Sprintf("The outbox %s cannot be drained: %s", name, s.State)
		case s.FailedAt != 0 && f.now.Sub(at(s.FailedAt)) < givenUpFor:
			return fmt.Sprintf("Documents of the outbox %s are given up: %d since the sidecar was started.", name, s.Failed)
		}
		return ""
	})
}

func diskLow(f *facts) []finding {
	return f.healthy(func(m *fleet.Member) (finding, bool) {
		p := &m.Health.Process
		free, low := float64(p.DiskFree), float64(p.DiskLow)
		x := finding{
			value: free, between: free >= diskBelow*low,
			text: fmt.Sprintf("The disk of sidecar %s has %s left; below %s nothing is stored.", m.NodeID, size(free), size(low)),
		}
		if free < low {
			x.severity = Critical
		}
		return x, low > 0 && free < diskAbove*low
	})
}

func memoryFull(f *facts) []finding {
	return f.healthy(func(m *fleet.Member) (finding, bool) {
		p := &m.Health.Process
		used, bound := float64(p.MemoryUsed), float64(p.MemoryBound)
		return finding{
			value: used, between: used < memoryAbove*bound,
			text: fmt.Sprintf("The clients of sidecar %s use %s of the %s that it has for them.", m.NodeID, size(used), size(bound)),
		}, bound > 0 && used >= memoryBelow*bound
	})
}

func clockSkew(f *facts) []finding {
	return f.healthy(func(m *fleet.Member) (finding, bool) {
		skew, how := m.Health.Skew, "ahead of"
		if skew < 0 {
			skew, how = -skew, "behind"
		}
		return finding{
			value: skew.Round(skewUnit).Seconds(), between: skew < skewAbove,
			text: fmt.Sprintf("The clock of sidecar %s is %v %s the control plane's.", m.NodeID, skew.Round(skewUnit), how),
		}, skew >= skewBelow
	})
}

func versionSkew(f *facts) []finding {
	counts := map[string]int{}
	for i := range f.members {
		if m := &f.members[i]; m.Connected {
			counts[m.Version]++
		}
	}
	if len(counts) < 2 {
		return nil
	}
	names := slices.Sorted(maps.Keys(counts))
	slices.SortStableFunc(names, func(a, b string) int { return counts[b] - counts[a] })
	var parts []string
	for _, name := range names[:min(len(names), namesShown)] {
		parts = append(parts, fmt.Sprintf("%d of %s", counts[name], name))
	}
	text := fmt.Sprintf("Sidecars of %d versions are connected: %s.", len(counts), strings.Join(parts, ", "))
	return []finding{{value: float64(len(counts)), text: text}}
}

// each looks at each connected sidecar.
func (f *facts) each(look func(*fleet.Member) (finding, bool)) (out []finding) {
	for i := range f.members {
		m := &f.members[i]
		if !m.Connected {
			continue
		}
		if x, found := look(m); found {
			x.Subject = Subject{NodeID: m.NodeID, Store: m.StoreID}
			out = append(out, x)
		}
	}
	return out
}

// healthy looks at each connected sidecar that has reported its health.
func (f *facts) healthy(look func(*fleet.Member) (finding, bool)) []finding {
	return f.each(func(m *fleet.Member) (finding, bool) {
		if m.Health == nil {
			return finding{}, false
		}
		return look(m)
	})
}

// sources looks at the outboxes or captures of each sidecar. look says what is wrong with one, "" if nothing is.
func (f *facts) sources(kind string, look func(name string, s health.Source) string) []finding {
	return f.healthy(func(m *fleet.Member) (finding, bool) {
		var wrong []string
		for name, s := range m.Health.Sources {
			if name.Kind == kind {
				if text := look(name.Name, s); text != "" {
					wrong = append(wrong, text)
				}
			}
		}
		slices.Sort(wrong)
		return finding{value: float64(len(wrong)), text: strings.Join(wrong[:min(len(wrong), namesShown)], " ")}, len(wrong) > 0
	})
}
