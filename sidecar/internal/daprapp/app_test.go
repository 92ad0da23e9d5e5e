package daprapp

import (
	"net/http"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
)

func TestParseAddress(t *testing.T) {
	for _, text := range []string{"http://127.0.0.1:3000", "http://localhost:1", "http://[::1]:3000", "http://127.9.9.9:3000"} {
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

func TestJudge(t *testing.T) {
	for _, tc := range []struct {
		status int
		body   string
		want   outcome
	}{
		{200, ``, success},
		{204, ``, success},
		{202, `{"status":"SUCCESS"}`, success},
		{200, `{"status":""}`, success},
		{200, `{"other":1}`, success},
		{200, `thanks`, success},
		{200, `{"status":"RETRY"}`, retry},
		{200, `{"status":"DROP"}`, drop},
		{200, `{"status":"success"}`, retry},
		{404, ``, drop},
		{400, ``, retry},
		{500, `{"status":"SUCCESS"}`, retry},
		{302, ``, retry},
	} {
		got, why := judge(&http.Response{StatusCode: tc.status}, []byte(tc.body))
		if got != tc.want || (why == "") != (got == success) {
			t.Errorf("%d %s: %d, %q", tc.status, tc.body, got, why)
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
			always + `,"source":"sluice","type":"com.dapr.event.sent","time":"1970-01-01T00:00:01.500Z","topic":"t","pubsubname":"p",` +
				`"datacontenttype":"application/json","data":{"a":1.50}}`},
		{wire.Event{ID: "i", TS: 1500, Topic: "t", Key: "k", Payload: []byte("a\"b"), Binary: true, Headers: wire.Headers{
			{Name: "content-type", Value: "text/plain"}, {Name: "traceparent", Value: "00-a"}, {Name: "shop", Value: "x"}}},
			always + `,"source":"sluice","type":"com.dapr.event.sent","time":"1970-01-01T00:00:01.500Z","topic":"t","pubsubname":"p",` +
				`"partitionkey":"k","traceparent":"00-a","datacontenttype":"text/plain","data":"a\"b"}`},
		{wire.Event{ID: "i", Topic: "t", Payload: []byte{0, 255}, Binary: true, Headers: wire.Headers{
			{Name: "ce-source", Value: "/s"}, {Name: "ce-type", Value: "x.y"}, {Name: "ce-time", Value: "2020-01-01T00:00:00+01:00"},
			{Name: "ce-specversion", Value: "1.0"},
			{Name: "ce-subject", Value: "ö"}, {Name: "ce-topic", Value: "theirs"}, {Name: "ce-my-ext", Value: "no attribute"},
			{Name: "ce-myext", Value: "1"}}},
			always + `,"source":"/s","type":"x.y","time":"2020-01-01T00:00:00+01:00","topic":"t","pubsubname":"p","subject":"ö",` +
				`"myext":"1","data_base64":"AP8="}`},
		{wire.Event{ID: "i", Topic: "t", Payload: []byte("\xff"), Binary: true,
			Headers: wire.Headers{{Name: "content-type", Value: "text/plain"}}},
			always + `,"source":"sluice","type":"com.dapr.event.sent","time":"1970-01-01T00:00:00.000Z","topic":"t","pubsubname":"p",` +
				`"datacontenttype":"text/plain","data_base64":"/w=="}`},
	} {
		if got := string(appendCloudEvent(nil, &tc.ev, "p")); got != tc.want {
			t.Errorf("\n got %s\nwant %s", got, tc.want)
		}
	}
}
