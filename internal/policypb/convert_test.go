package policypb_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/internal/policypb"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
)

func TestWhatHoldsArrives(t *testing.T) {
	full := policy.Defaults()
	full.Publish = policy.Publish{Rate: 1.5, Burst: 2, BytesPerSecond: 3, Scope: policy.ScopeFleet, OnLimit: policy.LimitWait,
		MaxWait: 4 * time.Second}
	full.Delivery.Backoff = policy.Backoff{Min: 5 * time.Nanosecond, Max: 292 * 365 * 24 * time.Hour}
	full.Durability = policy.Durability{WriteConcern: "w:2", OnStoreUnavailable: policy.StoreReject, SpoolMaxBytes: 1<<63 - 1}
	full.Schema = policy.Schema{JSONSchema: `{"type":"object"}`, Compatibility: policy.CompatibilityFull, Version: 7}
	full.Tracing.SampleRatio = 0
	full.Publish.Per = "header:tenant"
	full.Delivery.Fairness = policy.Fairness{By: "key_prefix:/", Weights: `{"a":0.5}`}
	full.Groups = `{"audit":{"paused":true,"rate":1.5,"max_inflight":3}}`
	full.Paused = true
	for _, want := range []policy.Effective{policy.Defaults(), full} {
		text, err := proto.Marshal(policypb.FromEffective(&want))
		require.NoError(t, err)
		var s policypb.Settings
		require.NoError(t, proto.Unmarshal(text, &s))
		if got, err := s.Effective(); err != nil || *got != want {
			t.Errorf("got %+v, %v\nwant %+v", got, err, want)
		}
	}
}

func TestAbsentFieldsHaveTheirDefaults(t *testing.T) {
	for _, s := range []*policypb.Settings{nil, {}, {Publish: &policypb.Settings_Publish{}}} {
		if got, err := s.Effective(); err != nil || *got != policy.Defaults() {
			t.Errorf("%v: got %+v, %v; want the defaults", s, got, err)
		}
	}
}

func TestEveryBadFieldIsNamed(t *testing.T) {
	s := &policypb.Settings{
		Publish: &policypb.Settings_Publish{
			Rate: proto.Float64(-1), Burst: proto.Int64(-1), Scope: proto.String("galaxy"),
			MaxWait: &durationpb.Duration{Seconds: 1, Nanos: -1},
		},
		Partitions: proto.Int64(0),
		Delivery:   &policypb.Settings_Delivery{MaxInflight: proto.Int64(1 << 40)},
	}
	s.Publish.ProtoReflect().SetUnknown([]byte{0x98, 0x06, 0x01}) // of a newer version
	got, err := s.Effective()
	e := wire.AsError(err)
	if got != nil || e.Code != wire.InvalidPolicy {
		t.Fatalf("got %v, %v", got, err)
	}
	bad := map[string]bool{}
	for _, f := range e.Fields {
		bad[f.Field] = true
	}
	for _, want := range []string{"publish.rate", "publish.burst", "publish.scope", "publish.max_wait", "partitions",
		"delivery.max_inflight"} {
		if !bad[want] {
			t.Errorf("%s is not named in %v", want, err)
		}
	}
	if len(bad) != 6 {
		t.Errorf("%d fields are named, want 6: %v", len(bad), err)
	}
}

func TestFieldsThatDoNotFitTogether(t *testing.T) {
	s := &policypb.Settings{Publish: &policypb.Settings_Publish{Rate: proto.Float64(5), Burst: proto.Int64(0)}}
	if _, err := s.Effective(); err == nil {
		t.Error("a rate without a burst was taken")
	}
}

// Any bytes are valid settings, or an error that names fields.
func FuzzSettings(f *testing.F) {
	defaults := policy.Defaults()
	text, err := proto.Marshal(policypb.FromEffective(&defaults))
	require.NoError(f, err)
	f.Add(text)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		var s policypb.Settings
		if proto.Unmarshal(data, &s) != nil {
			return
		}
		e, err := s.Effective()
		if err != nil {
			if e != nil || len(wire.AsError(err).Fields) == 0 {
				t.Fatalf("refused without a reason, or half: %v, %v", e, err)
			}
			return
		}
		if again, err := policypb.FromEffective(e).Effective(); err != nil || *again != *e {
			t.Fatalf("%+v is read back as %+v, %v", e, again, err)
		}
	})
}
