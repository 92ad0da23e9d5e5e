package policy

import (
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/require"
)

// Dead letters are kept for 720 hours and never compacted where no policy names their topic, and
// '*' does not.
func TestDeadLetterTopics(t *testing.T) {
	list, err := ParseYAML([]byte(`
- {name: "*", paused: true, retention: {ttl: 1h, compact: true}}
- {name: "orders.*", retention: {ttl: 2h}}
- {name: "audit.dlq", retention: {ttl: 0s}}
`))
	require.NoError(t, err)
	s, err := NewSnapshot(list, "test")
	require.NoError(t, err)
	resolved := NewResolvedSnapshot([]Resolved{{Name: "*", Effective: s.Topic("x")}, {Name: "orders.*", Effective: s.Topic("orders.x")},
		{Name: "audit.dlq", Effective: s.Topic("audit.dlq")}})
	empty, err := NewSnapshot(nil, "test")
	require.NoError(t, err)
	changed, err := empty.Change(list, nil, "test")
	require.NoError(t, err)
	again, err := changed.Change([]Policy{list[1]}, nil, "test")
	require.NoError(t, err)
	if changed.Topic("x.dlq") != again.Topic("x.dlq") {
		t.Error("what a change leaves as it was has not kept its pointer")
	}
	for _, s := range []*Snapshot{s, resolved, changed, again} {
		for topic, want := range map[string]Retention{
			"x": {TTL: time.Hour, Compact: true}, "x.dlq": {TTL: 720 * time.Hour}, ".dlq": {TTL: 720 * time.Hour},
			"dlq":            {TTL: time.Hour, Compact: true},
			"orders.new.dlq": {TTL: 2 * time.Hour, Compact: true}, "audit.dlq": {Compact: true},
		} {
			want.Expired = ExpiredDrop
			if got := s.Topic(topic).Retention; got != want {
				t.Errorf("%s keeps %+v; want %+v", topic, got, want)
			}
		}
		if !s.Topic("x.dlq").Paused {
			t.Error("'*' does not hold for x.dlq at all")
		}
	}
	if got := empty.Topic("x.dlq").Retention; got != (Retention{TTL: DeadLetterTTL, Expired: ExpiredDrop}) {
		t.Errorf("without policies x.dlq keeps %+v", got)
	}
}
