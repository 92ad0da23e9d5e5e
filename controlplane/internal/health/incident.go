package health

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Incident is something that is wrong with the fleet.
type Incident struct {
	Kind     string    `json:"kind"`
	Severity Severity  `json:"severity"`
	Since    time.Time `json:"since"`
	Text     string    `json:"text"`
	Remedy   string    `json:"remedy"`
	Subject
	Value float64 `json:"value,omitempty"` // what Text is about, where that is a number
}

// Subject is what an incident is about.
type Subject struct {
	NodeID string `json:"node_id,omitempty"`
	Store  string `json:"store,omitempty"`
	Topic  string `json:"topic,omitempty"`
	Group  string `json:"group,omitempty"`
}

// Severity says how soon to act.
type Severity string

// The severities, from the worst.
const (
	Critical Severity = "critical" // at once
	Warning  Severity = "warning"  // today
	Info     Severity = "info"     // when there is time
)

var urgency = map[Severity]int{Critical: 0, Warning: 1, Info: 2}

// finding is a subject of which a kind holds.
type finding struct {
	Subject
	severity Severity  // "": the kind's
	since    time.Time // zero: since it was found first
	value    float64
	text     string
	// between says that the value is between the threshold at which an incident begins and the one at
	// which it ends: an incident goes on, and none begins.
	between bool
}

// key tells incidents apart.
type key struct {
	kind string
	Subject
}

// episode is an incident, or what becomes one if it lasts.
type episode struct {
	Incident
	first, last time.Time // when it was found first and last
	open        bool      // it is an incident
}

// maxEpisodes bounds what a Tracker keeps.
const maxEpisodes = 2000

// advance returns the episodes after the findings of a moment. An episode opens once its finding has been there for
// the kind's after, and closes once it has been gone for the kind's quiet.
func advance(was map[key]episode, found map[string][]finding, now time.Time) map[key]episode {
	is := make(map[key]episode, len(was))
	for k, e := range was {
		if e.open && now.Sub(e.last) < kindOf[k.kind].quiet {
			is[k] = e
		}
	}
	for _, kind := range kinds {
		for _, f := range found[kind.name] {
			k := key{kind.name, f.Subject}
			e, known := was[k]
			if _, open := is[k]; known && !open && e.open {
				known = false // it is over; what was found begins another one
			}
			if f.between && (!known || !e.open) || !known && len(is) >= maxEpisodes {
				continue
			}
			if !known {
				e = episode{first: now}
			}
			e.last, e.open = now, e.open || now.Sub(e.first) >= kind.after
			e.Incident = Incident{
				Kind: kind.name, Severity: cmp.Or(f.severity, kind.severity), Since: e.first, Text: f.text, Remedy: kind.remedy,
				Subject: f.Subject, Value: f.value,
			}
			if !f.since.IsZero() {
				e.Since = f.since
			}
			is[k] = e
		}
	}
	return is
}

// incidents are the open episodes, the worst and then the latest first.
func incidents(all map[key]episode) []Incident {
	list := []Incident{}
	for e := range maps.Values(all) {
		if e.open {
			list = append(list, e.Incident)
		}
	}
	slices.SortFunc(list, func(a, b Incident) int {
		return cmp.Or(cmp.Compare(urgency[a.Severity], urgency[b.Severity]), b.Since.Compare(a.Since), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Store, b.Store), cmp.Compare(a.NodeID, b.NodeID), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Group, b.Group))
	})
	return list
}
