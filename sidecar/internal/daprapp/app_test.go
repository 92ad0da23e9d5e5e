package daprapp

import (
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/delivery"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

func TestParseAddress(t *testing.T) {
	for _, text := range []string{"http://127.0.0.1:3000", "http://localhost:1", "http://[::1]:3000", "http://127.9.9.9:3000",
		"grpc://127.0.0.1:3000"} {
		if u, err := ParseAddress(text); err != nil || u.String() != text {
			t.Errorf("%s: %v %v", text, u, err)
		}
	}
	for _, text := range []string{"", "127.0.0.1:3000", "https://127.0.0.1:3000", "http://127.0.0.1", "http://10.0.0.1:3000",
		"http://example.com:3000",
		"http://localhost.example.com:80", "http://0.0.0.0:3000", "http://127.0.0.1:3000/app", "http://u:p@127.0.0.1:3000",
		"http://127.0.0.1:3000?x", "http://127.0.0.1:x"} {
		if u, err := ParseAddress(text); err == nil {
			t.Errorf("%s is taken for %v", text, u)
		}
	}
}

func TestAnswersToOneEvent(t *testing.T) {
	for _, tc := range []struct {
		body string
		want delivery.Verdict
	}{
		{``, delivery.Ack},
		{`{"status":"SUCCESS"}`, delivery.Ack},
		{`{"status":""}`, delivery.Ack},
		{`{"other":1}`, delivery.Ack},
		{`thanks`, delivery.Ack},
		{`{"status":"RETRY"}`, delivery.Nack},
		{`{"status":"DROP"}`, delivery.Drop},
		{`{"status":"success"}`, delivery.Nack},
	} {
		got := judge([]byte(tc.body))
		if got.Verdict != tc.want || (got.Reason == "") != (got.Verdict == delivery.Ack) {
			t.Errorf("%s: %+v", tc.body, got)
		}
	}
}

// In a batch each event has its status, and what is not said is RETRY.
func TestAnswersToABatch(t *testing.T) {
	b := &batch{events: make([]entry, 2)}
	for i, id := range []string{"a", "b"} {
		b.events[i].Record = &eventlog.Record{Event: wire.Event{ID: id}}
	}
	const ok, again, drop = delivery.Ack, delivery.Nack, delivery.Drop
	for body, want := range map[string][2]delivery.Verdict{
		`{"statuses":[{"entryId":"b","status":"SUCCESS"},{"entryId":"a","status":"DROP"}]}`: {drop, ok},
		`{"statuses":[{"entryId":"a","status":"SUCCESS"},{"entryId":"x","status":"DROP"}]}`: {ok, again},
		`{"statuses":[{"entryId":"a"},{"entryId":"b","status":"RETRY"}]}`:                   {again, again},
		`{"status":"SUCCESS"}`: {again, again},
		``:                     {again, again},
		`thanks`:               {again, again},
		`{"statuses":{"a":1}}`: {again, again},
	} {
		if got := b.judge([]byte(body)); got[0].Verdict != want[0] || got[1].Verdict != want[1] {
			t.Errorf("%s: %+v, want %v", body, got, want)
		}
	}
}

func TestCloudEvent(t *testing.T) {
	const always = `{"specversion":"1.0","id":"i"`
	for _, tc := range []struct {
		ev   wire.Event
		want string
	}{
		{wire.Event{ID: "i", TS: 1500, Topic: "t", Payload: []byte(`{"a":1.50}`)},
			always + `,"source":"app","type":"com.dapr.event.sent","time":"1970-01-01T00:00:01.500Z","topic":"t","pubsubname":"p",` +
				`"datacontenttype":"application/json","data":{"a":1.50}}`},
		{wire.Event{ID: "i", TS: 1500, Topic: "t", Key: "k", Payload: []byte("a\"b"), Binary: true, Headers: wire.Headers{
			{Name: "content-type", Value: "text/plain"}, {Name: "traceparent", Value: "00-a"}, {Name: "shop", Value: "x"}}},
			always + `,"source":"app","type":"com.dapr.event.sent","time":"1970-01-01T00:00:01.500Z","topic":"t","pubsubname":"p",` +
				`"traceid":"00-a","partitionkey":"k","traceparent":"00-a","datacontenttype":"text/plain","data":"a\"b"}`},
		{wire.Event{ID: "i", Topic: "t", Payload: []byte{0, 255}, Binary: true, Headers: wire.Headers{
			{Name: "ce-source", Value: "/s"}, {Name: "ce-type", Value: "x.y"}, {Name: "ce-time", Value: "2020-01-01T00:00:00+01:00"},
			{Name: "ce-specversion", Value: "1.0"},
			{Name: "ce-subject", Value: "ö"}, {Name: "ce-topic", Value: "theirs"}, {Name: "ce-my-ext", Value: "no attribute"},
			{Name: "ce-myext", Value: "1"}}},
			always + `,"source":"/s","type":"x.y","time":"2020-01-01T00:00:00+01:00","topic":"t","pubsubname":"p","subject":"ö",` +
				`"myext":"1","data_base64":"AP8="}`},
		{wire.Event{ID: "i", Topic: "t", Payload: []byte("\xff"), Binary: true,
			Headers: wire.Headers{{Name: "content-type", Value: "text/plain"}}},
			always + `,"source":"app","type":"com.dapr.event.sent","time":"1970-01-01T00:00:00.000Z","topic":"t","pubsubname":"p",` +
				`"datacontenttype":"text/plain","data_base64":"/w=="}`},
	} {
		if got := string(wrap(&tc.ev, "app", &Subscription{PubsubName: "p"}).AppendJSON(nil)); got != tc.want {
			t.Errorf("\n got %s\nwant %s", got, tc.want)
		}
	}
}
