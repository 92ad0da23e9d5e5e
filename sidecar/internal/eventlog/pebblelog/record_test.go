package pebblelog

import (
	"bytes"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/test/require"
)

func anyRecord(t *rapid.T) *eventlog.Record {
	text := rapid.String()
	r := &eventlog.Record{AcceptedAt: rapid.Int64().Draw(t, "accepted")}
	r.Topic, r.Partition, r.Seq = "t", 3, 7
	r.ID, r.Key, r.SID = text.Draw(t, "id"), text.Draw(t, "key"), text.Draw(t, "sid")
	r.TS = rapid.Int64().Draw(t, "ts")
	r.TTLMS = rapid.OneOf(rapid.Just[int64](0), rapid.Int64Range(1, wire.MaxTTLMS)).Draw(t, "ttl")
	r.Tags, r.CausedBy = drawTexts(t, "tags"), drawTexts(t, "caused by")
	for _, name := range drawTexts(t, "headers") {
		r.Headers = append(r.Headers, wire.Header{Name: name, Value: text.Draw(t, "value")})
	}
	r.Payload = rapid.SliceOf(rapid.Byte()).Draw(t, "payload")
	r.Binary = rapid.Bool().Draw(t, "binary")
	return r
}

func drawTexts(t *rapid.T, label string) []string {
	list := rapid.SliceOfN(rapid.String(), 0, 3).Draw(t, label)
	if len(list) == 0 {
		return nil // the codec does not tell an empty list from none
	}
	return list
}

func TestRecordRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := anyRecord(t)
		value := appendRecord(nil, want, 0)
		got, err := decodeRecord("t", 3, 7, value)
		require.NoError(t, err)
		clear(value) // the record must not refer to it
		if got.Payload = append([]byte{}, got.Payload...); !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v; want %+v", got, want)
		}
	})
}

// What is on disk cannot change without another formatNumber.
func TestRecordIsFixed(t *testing.T) {
	r := &eventlog.Record{AcceptedAt: 5}
	r.Topic, r.Partition, r.Seq, r.ID, r.TS, r.Payload = "t", 3, 7, "id", 4, []byte("1")
	stored := []byte{0, 8, 2, 2, 'i', 'd', 0, 0, 0, 0, 0, '1'}
	if got := appendRecord(nil, r, 0); !bytes.Equal(got, stored) {
		t.Errorf("%v is written; want %v", got, stored)
	}
	if got, err := decodeRecord("t", 3, 7, stored); err != nil || !reflect.DeepEqual(got, r) {
		t.Errorf("%+v is read, %v; want %+v", got, err, r)
	}
}

// FuzzDecodeRecord: damage is an error, never a panic or a huge allocation, and what decodes means
// the same when it is written again.
func FuzzDecodeRecord(f *testing.F) {
	r := &eventlog.Record{AcceptedAt: 5}
	r.ID, r.Key, r.SID, r.TS = "id", "key", "sid", 4
	r.Headers = wire.Headers{{Name: "a", Value: "b"}}
	r.Tags, r.CausedBy, r.Payload = []string{"x"}, []string{"y", ""}, []byte(`{"z":1}`)
	whole := appendRecord(nil, r, 0)
	for i := range whole {
		f.Add(whole[:i])
	}
	f.Add(whole)
	f.Add([]byte{flagTTL, 0, 0})
	r.TTLMS = 300
	f.Add(appendRecord(nil, r, 0))
	f.Add(append(bytes.Clone(whole[:1]), bytes.Repeat([]byte{0xff}, 12)...))
	f.Fuzz(func(t *testing.T, value []byte) {
		r, err := decodeRecord("t", 1, 2, value)
		if err != nil {
			return
		}
		again, err := decodeRecord("t", 1, 2, appendRecord(nil, r, 0))
		if err != nil || !reflect.DeepEqual(r, again) {
			t.Errorf("%+v became %+v, %v", r, again, err)
		}
	})
}

// FuzzDecodeEntries: the same for the smaller values and an epoch's key.
func FuzzDecodeEntries(f *testing.F) {
	f.Add(appendIDEntry(nil, idEntry{location: location{1, 2}}))
	f.Add(appendIDEntry(nil, idEntry{location: location{1, 2}, remnant: true, ts: 3, acceptedAt: 4}))
	f.Add([]byte(epochKey(epochID{topic: 1, partition: 2, group: "g"})))
	f.Add(appendEpoch(nil, &eventlog.Epoch{Number: 3, Owner: "n", Progress: eventlog.Progress{
		Settled:  []eventlog.SeqRange{{First: 3, Last: 4}},
		Attempts: []eventlog.AttemptRange{{SeqRange: eventlog.SeqRange{First: 1, Last: 2}, Attempts: 5}}}}))
	f.Fuzz(func(t *testing.T, value []byte) {
		if e, err := decodeIDEntry(value); err == nil {
			if again, err := decodeIDEntry(appendIDEntry(nil, e)); err != nil || again != e {
				t.Errorf("%+v became %+v, %v", e, again, err)
			}
		}
		if id, err := decodeEpochKey(value); err == nil && string(epochKey(id)) != string(value) {
			t.Errorf("key %q became %+v", value, id)
		}
		if e, err := decodeEpoch(value); err == nil {
			if again, err := decodeEpoch(appendEpoch(nil, &e)); err != nil || !reflect.DeepEqual(again, e) {
				t.Errorf("%+v became %+v, %v", e, again, err)
			}
		}
	})
}

// TestTextsInKeysSortByTheirBytes: escaped texts compare as the texts do, and none is another's
// prefix.
func TestTextsInKeysSortByTheirBytes(t *testing.T) {
	texts := rapid.StringOf(rapid.SampledFrom([]rune{0, 1, 'a', 'b', 0xff, 0x7ff}))
	rapid.Check(t, func(t *rapid.T) {
		a, b := texts.Draw(t, "a"), texts.Draw(t, "b")
		ea, eb := appendText(nil, a), appendText(nil, b)
		if got, want := bytes.Compare(ea, eb), slices.Compare([]byte(a), []byte(b)); got != want {
			t.Fatalf("%q and %q compare %d; want %d", ea, eb, got, want)
		}
		if a != b && (bytes.HasPrefix(ea, eb) || bytes.HasPrefix(eb, ea)) {
			t.Fatalf("one of %q and %q begins with the other", ea, eb)
		}
	})
}
