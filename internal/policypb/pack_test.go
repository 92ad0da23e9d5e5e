package policypb

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-bus/sluice/test/require"
)

// FuzzDecodePack compares DecodePack with proto.Unmarshal.
func FuzzDecodePack(f *testing.F) {
	pack, err := proto.Marshal(&PolicyPack{
		Settings: [][]byte{{}, []byte("settings")},
		Policies: []*PolicyPack_Policy{{}, {Name: "orders.*", Version: 1 << 40, Settings: 1}, {Name: "a", Version: -1}},
	})
	require.NoError(f, err)
	f.Add(pack)
	f.Add([]byte{0x08, 1, 0x10, 2, 0x1d, 1, 2, 3, 4, 0x23, 0x24}) // other types of fields, and a group
	f.Add([]byte("\x12\x06\x08\x01\x12\x01a\x18"))
	f.Add([]byte("\xb0\xc5\xc5\xb0\xcd0"))
	f.Add([]byte("\x12\x03\x0a\x01\xff"))
	f.Fuzz(func(t *testing.T, encoded []byte) {
		var want PolicyPack
		wantErr := proto.Unmarshal(encoded, &want)
		got, err := DecodePack(encoded)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%v, want %v", err, wantErr)
		}
		if err != nil {
			return
		}
		if !slices.EqualFunc(got.Settings, want.GetSettings(), slices.Equal) {
			t.Errorf("settings %q, want %q", got.Settings, want.GetSettings())
		}
		if !slices.EqualFunc(got.Policies, want.GetPolicies(), func(a PackedPolicy, b *PolicyPack_Policy) bool {
			return a == PackedPolicy{Name: b.GetName(), Version: b.GetVersion(), Settings: b.GetSettings()}
		}) {
			t.Errorf("policies %v, want %v", got.Policies, want.GetPolicies())
		}
	})
}
