package policy

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/require"
)

// Dead letters are kept for what their topic's policy says of dead letters, whatever globs say of
// retention; all other fields are those of the name.
func TestDeadLetterTopics(t *testing.T) {
	list, err := ParseYAML([]byte(`
- {name: "*", paused: true, retention: {ttl: 1h, compact: true, max_bytes: 5, expired: dead_letter}}
- {name: "orders.*", retention: {ttl: 2h, dead_letters: 3h}}
- {name: "audit", retention: {dead_letters: 0s}}
- {name: "audit.dlq", partitions: 3}
- {name: "audit.d*", retention: {ttl: 5h, dead_letters: 6h}, partitions: 4}
`))
	require.NoError(t, err)
	s, err := NewSnapshot(list, "test")
	require.NoError(t, err)
	var all []Resolved
	for _, p := range list {
		all = append(all, Resolved{Name: p.Name, Effective: s.Effective(p.Name)})
	}
	empty, err := NewSnapshot(nil, "test")
	require.NoError(t, err)
	changed, err := empty.Change(list, nil, "test")
	require.NoError(t, err)
	again, err := changed.Change([]Policy{list[1]}, nil, "test")
	require.NoError(t, err)
	for _, s := range []*Snapshot{s, NewResolvedSnapshot(all), changed, again} {
		for topic, want := range map[string]time.Duration{
			"x.dlq": 720 * time.Hour, ".dlq": 720 * time.Hour, "orders.new.dlq": 3 * time.Hour, "orders.new.dlq.dlq": 3 * time.Hour,
			"audit.dlq": 0, "audit.dlq.dlq": 0, "audit.data.dlq": 6 * time.Hour,
		} {
			if got := s.Topic(topic).Retention; got != (Retention{TTL: want, Expired: ExpiredDrop, DeadLetters: want}) {
				t.Errorf("%s keeps %+v; want %v", topic, got, want)
			}
		}
		for topic, want := range map[string]int{"audit": 8, "audit.dlq": 3, "audit.dlq.dlq": 4, "x.dlq": 8} {
			if got := s.Topic(topic); got.Partitions != want || !got.Paused {
				t.Errorf("%s has %d partitions, paused: %v; want %d, and true of the policy *", topic, got.Partitions, got.Paused, want)
			}
		}
		if got := s.Topic("dlq").Retention.TTL; got != time.Hour {
			t.Errorf("dlq, a topic like others, keeps %v", got)
		}
		if s.Topic("x.dlq") != s.Topic("y.dlq") {
			t.Error("topics of dead letters do not share their values")
		}
	}
	if got := empty.Topic("x.dlq").Retention.TTL; got != 720*time.Hour {
		t.Errorf("without policies x.dlq keeps %v", got)
	}
}

func TestRetentionOfDeadLettersIsTheTopics(t *testing.T) {
	for _, field := range []string{"ttl: 1h", "compact: true", "max_bytes: 1", "expired: drop", "dead_letters: 1h"} {
		_, err := ParseYAML([]byte("- {name: a.dlq, retention: {" + field + "}}"))
		path := "policies[0].retention." + field[:strings.Index(field, ":")]
		if err == nil || !strings.Contains(err.Error(), path+": ") ||
			!strings.Contains(err.Error(), `retention.dead_letters of the policy of their topic, "a"`) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
