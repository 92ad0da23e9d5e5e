package progress

import (
	"bytes"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

func record(entries ...Entry) []byte {
	b := beginRecord(nil)
	for _, e := range entries {
		b = appendEntry(b, e.Key, e.Value)
	}
	sealRecord(b)
	return b
}

// TestRecordsReplay: appended records are read back, also with other bytes behind the last one.
func TestRecordsReplay(t *testing.T) {
	entry := rapid.Custom(func(t *rapid.T) Entry {
		return Entry{Key: rapid.StringN(0, 4, -1).Draw(t, "key"), Value: rapid.SliceOf(rapid.Byte()).Draw(t, "value")}
	})
	rapid.Check(t, func(t *rapid.T) {
		want := map[string][]byte{}
		var log []byte
		for _, entries := range rapid.SliceOf(rapid.SliceOf(entry)).Draw(t, "records") {
			log = append(log, record(entries...)...)
			size := headerSize
			for _, e := range entries {
				if want[e.Key] = append([]byte(nil), e.Value...); len(e.Value) == 0 {
					delete(want, e.Key)
				}
				size += int(entrySize(e.Key, e.Value))
			}
			if !bytes.HasSuffix(log, record(entries...)) || len(record(entries...)) != size {
				t.Fatalf("a record of %d bytes; want %d", len(record(entries...)), size)
			}
		}
		whole := len(log)
		log = append(log, make([]byte, rapid.IntRange(0, 20).Draw(t, "zeros"))...)
		got := map[string][]byte{}
		if valid := replay(log, got); valid != whole || !reflect.DeepEqual(got, want) {
			t.Fatalf("%d of %d bytes are valid and hold %v; want %d, %v", valid, len(log), got, whole, want)
		}
	})
}

// FuzzReplay: a replay reads any bytes up to the first that are no record. Its entries, written
// again, read the same.
func FuzzReplay(f *testing.F) {
	log := append(record(Entry{"a", []byte("1")}, Entry{"", nil}), record(Entry{"a", []byte("2")})...)
	for i := range log {
		f.Add(log[:i])
		f.Add(append(bytes.Clone(log[:i]), log[i]^1))
	}
	f.Add(log)
	f.Add(append(bytes.Clone(log), make([]byte, 32)...))
	f.Add(bytes.Repeat([]byte{0xff}, 40))
	f.Fuzz(func(t *testing.T, log []byte) {
		first := map[string][]byte{}
		valid := replay(log, first)
		if valid > len(log) {
			t.Fatalf("%d of %d bytes are valid", valid, len(log))
		}
		// The checksum keeps most mutations away from the entries: seal what there is.
		if len(log) >= headerSize {
			sealed := bytes.Clone(log)
			sealRecord(sealed)
			if entries, size := firstRecord(sealed); size != 0 && size != len(sealed) {
				t.Errorf("a record of %d bytes is read as %d, %v", len(sealed), size, entries)
			}
		}
		again := beginRecord(nil)
		for key, value := range first {
			again = appendEntry(again, key, value)
		}
		sealRecord(again)
		second := map[string][]byte{}
		if n := replay(again, second); n != len(again) || !reflect.DeepEqual(second, first) {
			t.Errorf("%v became %v", first, second)
		}
	})
}
