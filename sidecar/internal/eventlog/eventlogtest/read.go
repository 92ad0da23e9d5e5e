package eventlogtest

import (
	"slices"
	"testing"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

func testRead(t *testing.T, s *suite) {
	topic := s.topic(t, 2)
	s.stored(t, topic, 0, Events("a", 20)...)
	s.stored(t, topic, 1, Events("b", 2)...)
	size := s.readAll(t, topic, 0)[0].Size()

	cases := []struct {
		name   string
		from   uint64
		bounds eventlog.Bounds
		want   []uint64
	}{
		{"from the start", 1, eventlog.Bounds{Events: 3}, []uint64{1, 2, 3}},
		{"from zero", 0, eventlog.Bounds{Events: 2}, []uint64{1, 2}},
		{"from the middle", 10, eventlog.Bounds{Events: 2}, []uint64{10, 11}},
		{"to the end", 19, everything, []uint64{19, 20}},
		{"behind the end", 21, everything, nil},
		{"far behind the end", 1 << 60, everything, nil},
		{"until the bytes add up", 1, eventlog.Bounds{Events: 20, Bytes: 3 * size}, []uint64{1, 2, 3}},
		{"at least one", 5, eventlog.Bounds{Events: 20, Bytes: 1}, []uint64{5}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			events, err := s.log.Read(t.Context(), topic, 0, c.from, c.bounds)
			must(t, err)
			if got := seqs(events); !slices.Equal(got, c.want) {
				t.Errorf("seqs %v; want %v", got, c.want)
			}
		})
	}
	t.Run("an untouched partition is empty", func(t *testing.T) { s.wantRead(t, s.topic(t, 2), 1) })
}

func testFind(t *testing.T, s *suite) {
	topic, other := s.topic(t, 2), s.topic(t, 1)
	old := Event("k-old", Keyed("k"), At(start+100))
	s.stored(t, topic, 1, old)
	// The latest by seq has neither the highest ts nor the highest id.
	latest := Event("k-a", Keyed("k"), At(start-100))
	seq := s.stored(t, topic, 1, latest)[0]
	s.stored(t, topic, 0, Event("plain"), Event("kk", Keyed("kk")), Event("nul", Keyed("k\x00")))

	t.Run("Lookup finds an id", func(t *testing.T) {
		got, err := s.log.Lookup(t.Context(), topic, "k-a")
		must(t, err)
		sameRecord(t, got, placed(latest, topic, 1, seq))
	})
	t.Run("Lookup of an id the topic does not have", func(t *testing.T) {
		for _, id := range []string{"K-A", "k-", "nothing"} {
			s.wantNoEvent(t, topic, id)
		}
		s.wantNoEvent(t, other, "k-a")
	})
	t.Run("LatestByKey goes by seq", func(t *testing.T) {
		got, err := LatestByKey(t.Context(), s.log, topic, "k")
		must(t, err)
		sameRecord(t, got, placed(latest, topic, 1, seq))
		s.wantLatestByKey(t, topic, "kk", "kk")
		s.wantLatestByKey(t, topic, "k\x00", "nul")
	})
	t.Run("LatestByKey of a key the topic does not have", func(t *testing.T) {
		for _, key := range []string{"K", "kkk", ""} {
			s.wantLatestByKey(t, topic, key, "")
		}
	})
}
