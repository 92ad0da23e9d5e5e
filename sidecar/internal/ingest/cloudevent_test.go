package ingest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// told is an event in one line, for a table to compare.
func told(it wire.PublishItem, err *wire.Error) string {
	if err == nil {
		err = it.Err
	}
	if err != nil {
		return string(err.Code) + ": " + err.Msg
	}
	e := &it.Event
	headers := map[string]string{}
	for _, h := range e.Headers {
		headers[h.Name] = h.Value
	}
	var out strings.Builder
	fmt.Fprintf(&out, "id=%s", e.ID)
	if e.Key != "" {
		fmt.Fprintf(&out, " key=%s", e.Key)
	}
	if it.HasTS {
		fmt.Fprintf(&out, " ts=%d", e.TS)
	}
	if e.TTLMS != 0 {
		fmt.Fprintf(&out, " ttl_ms=%d", e.TTLMS)
	}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		fmt.Fprintf(&out, " %s=%s", name, headers[name])
	}
	kind := "json"
	if e.Binary {
		kind = "bytes"
	}
	return out.String() + " " + kind + "=" + string(e.Payload)
}

// request makes headers of "Name: value".
func request(headers ...string) http.Header {
	h := http.Header{}
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		h.Add(name, value)
	}
	return h
}

// publishItem is the item that a request is published as.
func publishItem(h http.Header, content string, lim wire.Limits) (wire.PublishItem, *wire.Error) {
	head, err := readHead(h)
	if err != nil {
		return wire.PublishItem{}, err
	}
	return itemOf("t", &head, []byte(content), lim)
}

var required = []string{"ce-specversion: 1.0", "ce-id: i", "ce-source: /s", "ce-type: com.example.t"}

const kept = "ce-source=/s ce-specversion=1.0"

func TestBinaryCloudEvent(t *testing.T) {
	with := func(headers ...string) []string { return append(slices.Clone(required), headers...) }
	without := func(name string) []string {
		return slices.DeleteFunc(with(), func(h string) bool { return strings.HasPrefix(h, "ce-"+name+":") })
	}
	for _, tc := range []struct {
		headers       []string
		content, want string
	}{
		{with(), `{"a": 1.50}`, `id=i ` + kept + ` ce-type=com.example.t json={"a":1.50}`},
		{with("Content-Type: application/json; charset=utf-8"), `1`,
			`id=i ` + kept + ` ce-type=com.example.t content-type=application/json; charset=utf-8 json=1`},
		{with("Content-Type: application/x-www-form-urlencoded"), `1`, `id=i ` + kept + ` ce-type=com.example.t json=1`},
		{with("Content-Type: application/vnd.shop+json"), `1`,
			`id=i ` + kept + ` ce-type=com.example.t content-type=application/vnd.shop+json json=1`},
		{with("Content-Type: text/xml"), `<a/>`, `id=i ` + kept + ` ce-type=com.example.t content-type=text/xml bytes=<a/>`},
		{with("Content-Type: application/x-ndjson"), "1\n2",
			`id=i ` + kept + ` ce-type=com.example.t content-type=application/x-ndjson bytes=` + "1\n2"},
		{with(), ``, `id=i ` + kept + ` ce-type=com.example.t json=null`},
		{with("Content-Type: image/png"), ``, `id=i ` + kept + ` ce-type=com.example.t content-type=image/png bytes=`},
		{with("ce-subject: a", "ce-dataschema: http://x/y", "ce-myext: 7", "ce-time: 2018-04-05T17:31:00.5Z"), `1`,
			`id=i ts=1522949460500 ce-dataschema=http://x/y ce-myext=7 ` + kept +
				` ce-subject=a ce-time=2018-04-05T17:31:00.5Z ce-type=com.example.t json=1`},
		{with("ce-time: 2018-04-05t17:31:00+02:00", "Sluice-Ts: 7"), `1`,
			`id=i ts=7 ` + kept + ` ce-time=2018-04-05t17:31:00+02:00 ce-type=com.example.t json=1`},
		{with("ce-time: 1969-12-31T23:59:59Z"), `1`, `id=i ` + kept + ` ce-time=1969-12-31T23:59:59Z ce-type=com.example.t json=1`},
		{with("ce-partitionkey: k"), `1`, `id=i key=k ` + kept + ` ce-type=com.example.t json=1`},
		{with("ce-ttlms: 5"), `1`, `id=i ttl_ms=5 ` + kept + ` ce-type=com.example.t json=1`},
		{with("ce-ttlms: 5", "Sluice-Ttl-Ms: 5"), `1`, `id=i ttl_ms=5 ` + kept + ` ce-type=com.example.t json=1`},
		{with("Sluice-Ttl-Ms: 7"), `1`, `id=i ttl_ms=7 ` + kept + ` ce-type=com.example.t json=1`},
		{with("ce-partitionkey: k", "Sluice-Key: k", "Idempotency-Key: i"), `1`, `id=i key=k ` + kept + ` ce-type=com.example.t json=1`},
		{with("ce-traceparent: "+traceA, "ce-tracestate: x=1"), `1`,
			`id=i ` + kept + ` ce-type=com.example.t traceparent=` + traceA + ` tracestate=x=1 json=1`},
		{with("ce-traceparent: "+traceA, "traceparent: "+traceB), `1`,
			`id=i ` + kept + ` ce-traceparent=` + traceA + ` ce-type=com.example.t traceparent=` + traceB + ` json=1`},
		{with("Sluice-Header-Shop: 1", "Sluice-Header-Ce-Type: x"), `1`, `id=i ` + kept + ` ce-type=com.example.t shop=1 json=1`},
		{with("Content-Type: text/plain", "ce-datacontenttype: text/plain"), `x`,
			`id=i ` + kept + ` ce-type=com.example.t content-type=text/plain bytes=x`},

		// Values are percent-encoded, and were quoted once.
		{with("ce-subject: Euro%20%E2%82%AC%20%F0%9F%98%80%25"), `1`, `id=i ` + kept + ` ce-subject=Euro € 😀% ce-type=com.example.t json=1`},
		{with("ce-subject: %41%2541"), `1`, `id=i ` + kept + ` ce-subject=A%41 ce-type=com.example.t json=1`},
		{with("ce-subject: a+b"), `1`, `id=i ` + kept + ` ce-subject=a+b ce-type=com.example.t json=1`},
		{with("ce-subject: grün"), `1`, `id=i ` + kept + ` ce-subject=grün ce-type=com.example.t json=1`},
		{with(`ce-subject: "a \"b\" \\ %22"`), `1`, `id=i ` + kept + ` ce-subject=a "b" \ " ce-type=com.example.t json=1`},
		{with(`ce-subject: a"b`), `1`, `id=i ` + kept + ` ce-subject=a"b ce-type=com.example.t json=1`},
		{with(`ce-subject: "a`), `1`, `bad_request: header Ce-Subject is`},
		{with(`ce-subject: "a"b`), `1`, `bad_request: header Ce-Subject is`},
		{with(`ce-subject: 100%`), `1`, `bad_request: header Ce-Subject is`},
		{with(`ce-subject: %C0%A0`), `1`, `bad_request: header Ce-Subject is`},
		{with(`ce-subject: %ED%A0%80`), `1`, `bad_request: header Ce-Subject is`},
		{with("ce-subject: \xff"), `1`, `bad_request: header Ce-Subject is not valid UTF-8`},
		{with(`ce-subject: a%0Ab`), `1`, `bad_request: the CloudEvent's attribute subject holds a control character`},

		{without("id"), `1`, `bad_request: the CloudEvent's attribute id is missing`},
		{without("source"), `1`, `bad_request: the CloudEvent's attribute source is missing`},
		{without("type"), `1`, `bad_request: the CloudEvent's attribute type is missing`},
		{without("specversion"), `1`, `bad_request: the CloudEvent's attribute specversion is missing`},
		{[]string{"ce-myext: 1"}, `1`, `bad_request: the CloudEvent's attribute specversion is missing`},
		{append(without("specversion"), "ce-specversion: 0.3"), `1`, `bad_request: the CloudEvent's attribute specversion is "0.3"; only 1.0`},
		{append(without("source"), "ce-source: "), `1`, `bad_request: the CloudEvent's attribute source is empty`},
		{append(without("id"), "ce-id: a b"), `1`, `bad_request: the CloudEvent's attribute id "a b"`},
		{append(without("id"), "ce-id: "+strings.Repeat("i", 129)), `1`, `bad_request: the CloudEvent's attribute id is 129 characters long`},
		{with("ce-my-ext: 1"), `1`, `bad_request: "my-ext" cannot be a CloudEvent's attribute`},
		{with("ce-my_ext: 1"), `1`, `bad_request: "my_ext" cannot be`},
		{with("ce-: 1"), `1`, `bad_request: "" cannot be`},
		{with("ce-data: 1"), `1`, `bad_request: a CloudEvent has no attribute data`},
		{with("ce-subject: "), `1`, `bad_request: the CloudEvent's attribute subject is empty`},
		{with("ce-subject: a", "ce-subject: b"), `1`, `bad_request: header Ce-Subject is given 2 times`},
		{with("ce-time: yesterday"), `1`, `bad_request: the CloudEvent's attribute time is "yesterday"`},
		{with("ce-datacontenttype: text/xml"), `1`, `bad_request: header Ce-Datacontenttype`},
		{with("Sluice-Id: j"), `1`, `bad_request: the CloudEvent's attribute id and`},
		{with("ce-ttlms: 0"), `1`, `bad_request: the CloudEvent's attribute ttlms is "0"; a whole number from 1 to 315360000000 is allowed`},
		{with("ce-ttlms: 5", "Sluice-Ttl-Ms: 6"), `1`, `bad_request: the CloudEvent's attribute ttlms and`},
		{with("Sluice-Ttl-Ms: +5"), `1`, `bad_request: header Sluice-Ttl-Ms is "+5"`},
		{with("Sluice-Ttl-Ms: "), `1`, `bad_request: header Sluice-Ttl-Ms is ""`},
		{with("ce-partitionkey: k", "Sluice-Key: l"), `1`, `bad_request: the CloudEvent's attribute partitionkey and`},
		{with("ce-partitionkey: " + strings.Repeat("k", 513)), `1`, `bad_request: key is 513 bytes long`},
		{with("Content-Type: application/json"), `{`, `bad_json: payload`},
	} {
		if got := told(publishItem(request(tc.headers...), tc.content, wire.DefaultLimits())); got != tc.want &&
			!(strings.HasPrefix(tc.want, "bad_") && strings.HasPrefix(got, tc.want)) {
			t.Errorf("%q %s:\n got %s\nwant %s", tc.headers[min(4, len(tc.headers)-1):], tc.content, got, tc.want)
		}
	}
}

func TestStructuredCloudEvent(t *testing.T) {
	const event = `"specversion":"1.0","id":"i","source":"/s","type":"t"`
	const all = `ce-source=/s ce-specversion=1.0 ce-type=t `
	for _, tc := range []struct{ content, want string }{
		{`{` + event + `,"data":{"a": 1.50}}`, `id=i ` + all + `json={"a":1.50}`},
		{`{` + event + `}`, `id=i ` + all + `json=null`},
		{`{` + event + `,"data":null,"data_base64":null}`, `id=i ` + all + `json=null`},
		{`{` + event + `,"data":"text"}`, `id=i ` + all + `json="text"`},
		{`{` + event + `,"data":"\ud800"}`, `id=i ` + all + `json="\ud800"`},
		{`{` + event + `,"datacontenttype":"application/json","data":12345678901234567890}`, `id=i ` + all + `json=12345678901234567890`},
		{`{` + event + `,"datacontenttype":"application/vnd.x+json","data":1}`, `id=i ` + all + `content-type=application/vnd.x+json json=1`},
		{`{` + event + `,"datacontenttype":"text/xml","data":"<a>ü</a>"}`, `id=i ` + all + `content-type=text/xml bytes=<a>ü</a>`},
		{`{` + event + `,"datacontenttype":"text/xml"}`, `id=i ` + all + `content-type=text/xml bytes=`},
		{`{` + event + `,"data_base64":"AGE="}`, `id=i ` + all + "bytes=\x00a"},
		{`{` + event + `,"datacontenttype":"image/png","data_base64":"AGE="}`, `id=i ` + all + "content-type=image/png bytes=\x00a"},
		{`{` + event + `,"datacontenttype":"application/json","data_base64":"eyJhIjogMX0="}`, `id=i ` + all + `json={"a":1}`},
		{`{` + event + `,"data":1,"time":"2018-04-05T17:31:00Z","subject":"s","partitionkey":"k","dataschema":"x:y"}`,
			`id=i key=k ts=1522949460000 ce-dataschema=x:y ce-source=/s ce-specversion=1.0 ce-subject=s ce-time=2018-04-05T17:31:00Z ` +
				`ce-type=t json=1`},
		{`{` + event + `,"data":1,"yes":true,"n":-7,"none":null,"euro":"€ 100%"}`,
			`id=i ce-euro=€ 100% ce-n=-7 ce-source=/s ce-specversion=1.0 ce-type=t ce-yes=true json=1`},
		{`{` + event + `,"data":1,"traceparent":"` + traceA + `","tracestate":"b=c"}`,
			`id=i ` + all + `traceparent=` + traceA + ` tracestate=b=c json=1`},
		{`{` + event + `,"data":1,"traceparent":""}`, `id=i ce-source=/s ce-specversion=1.0 ce-traceparent= ce-type=t json=1`},
		{`{` + event + `,"id":"j","data":1}`, `id=j ` + all + `json=1`},
		{`{` + event + `,"data":1,"type":null}`, `bad_request: the CloudEvent's attribute type is missing`},
		{`{` + event + `,"data":1,"subject":""}`, `bad_request: the CloudEvent's attribute subject is empty`},
		{`{` + event + `,"data":1,"Upper":"x"}`, `bad_request: "Upper" cannot be a CloudEvent's attribute`},
		{`{` + event + `,"data":1,"n":1.5}`, `bad_request: the CloudEvent's attribute n must be a string, a boolean or a whole number`},
		{`{` + event + `,"data":1,"n":{}}`, `bad_request: the CloudEvent's attribute n must be`},
		{`{` + event + `,"data":1,"n":"\ud800x"}`, `bad_request: the CloudEvent's attribute n holds a lone surrogate`},
		{`{` + event + `,"data":1,"n":"a\u0000"}`, `bad_request: the CloudEvent's attribute n holds a control character`},
		{`{` + event + `,"data":1,"data_base64":"AA=="}`, `bad_request: a CloudEvent has either data or data_base64`},
		{`{` + event + `,"data_base64":"*"}`, `bad_request: data_base64 is not standard base64`},
		{`{` + event + `,"data_base64":1}`, `bad_request: data_base64 must be a string`},
		{`{` + event + `,"datacontenttype":"text/xml","data":{}}`, `bad_request: data must be a string where datacontenttype is "text/xml"`},
		{`{` + event + `,"datacontenttype":"text/xml","data":"\udc00"}`, `bad_request: data holds a lone surrogate`},
		{`{` + event + `,"datacontenttype":1,"data":1}`, `bad_request: the CloudEvent's attribute datacontenttype must be a string`},
		{`{"specversion":"1.0","id":5}`, `bad_request: the CloudEvent's attribute id must be a string`},
		{`{` + event + `,"data":1,"subject":true}`, `bad_request: the CloudEvent's attribute subject must be a string`},
		{`{"id":"i"}`, `bad_request: the CloudEvent's attribute specversion is missing`},
		{`{"specversion":1.0}`, `bad_request: the CloudEvent's attribute specversion must be a string`},
		{`[]`, `bad_request: a CloudEvent must be a JSON object`},
		{`null`, `bad_request: a CloudEvent must be a JSON object`},
		{``, `bad_json: the CloudEvent is not JSON: `},
		{`{` + event, `bad_json: the CloudEvent is not JSON: `},
		{`{"a":"` + "\xff" + `"}`, `bad_json: the CloudEvent is not JSON: it is not valid UTF-8`},
	} {
		h := request("Content-Type: Application/CloudEvents+JSON; charset=utf-8")
		got := told(publishItem(h, tc.content, wire.DefaultLimits()))
		if got != tc.want && !(strings.HasPrefix(tc.want, "bad_") && strings.HasPrefix(got, tc.want)) {
			t.Errorf("%s:\n got %s\nwant %s", tc.content, got, tc.want)
		}
	}
	for _, media := range []string{"application/cloudevents", "application/cloudevents+avro", "application/cloudevents+xml"} {
		if _, err := publishItem(request("Content-Type: "+media), `{}`, wire.DefaultLimits()); err == nil || !strings.Contains(err.Msg, media) {
			t.Errorf("%s: %v", media, err)
		}
	}
}

func TestCloudEventLimits(t *testing.T) {
	lim := smallLimits()
	structured := func(members string) (wire.PublishItem, *wire.Error) {
		return publishItem(request("Content-Type: application/cloudevents+json"),
			`{"specversion":"1.0","id":"i","source":"s","type":"t"`+members+`}`, lim)
	}
	for members, code := range map[string]wire.Code{
		`,"a":"1"`:         "",
		`,"a":"1","b":"2"`: wire.PayloadTooLarge,
		`,"subject":"` + strings.Repeat("s", 200) + `"`:                             wire.PayloadTooLarge,
		`,"data":"` + strings.Repeat("s", 100) + `"`:                                wire.PayloadTooLarge,
		`,"datacontenttype":"text/plain","data":"` + strings.Repeat("s", 101) + `"`: wire.PayloadTooLarge,
		`,"partitionkey":"01234567890"`:                                             wire.BadRequest,
		`,"data":` + strings.Repeat("[", 9) + strings.Repeat("]", 9):                wire.BadRequest,
	} {
		_, err := structured(members)
		if (err == nil) != (code == "") || err != nil && err.Code != code {
			t.Errorf("%s: %v, want %s", members, err, code)
		}
	}
}

func TestBatchedCloudEvents(t *testing.T) {
	lim := smallLimits()
	good := func(id string) string {
		return `{"specversion":"1.0","id":"` + id + `","source":"s","type":"t","data":1}`
	}
	for _, tc := range []struct{ content, want string }{
		{`[]`, ``},
		{` [ ` + good("a") + ` , ` + good("b") + ` ] `,
			`id=a ce-source=s ce-specversion=1.0 ce-type=t json=1|id=b ce-source=s ce-specversion=1.0 ce-type=t json=1`},
		{`[` + good("a") + `,1]`, `id=a ce-source=s ce-specversion=1.0 ce-type=t json=1|bad_request: a CloudEvent must be a JSON object`},
		{`[{}]`, `bad_request: the CloudEvent's attribute specversion is missing`},
		{`[1,2,3,4]`, `!payload_too_large: the batch holds more than the 3 events that are allowed (--limits batch)`},
		{`{}`, `!bad_request: a batch must be a JSON array of CloudEvents`},
		{`[` + good("a"), `!bad_json: the batch is not JSON: the text ends too early`},
		{`[] x`, `!bad_json: the batch is not JSON: more text after the array`},
		{``, `!bad_json: the batch is not JSON: the text ends too early`},
		{`["` + "\xff" + `"]`, `!bad_json: the batch is not JSON: it is not valid UTF-8`},
	} {
		items, err := batchedItems("t", new(head), []byte(tc.content), lim)
		var all []string
		for _, it := range items {
			all = append(all, told(it, nil))
		}
		got := strings.Join(all, "|")
		if err != nil {
			got = "!" + told(wire.PublishItem{}, err)
		}
		if got != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", tc.content, got, tc.want)
		}
	}
	if _, err := batchedItems("t", &head{Header: request("Sluice-Key: k")}, []byte("[]"), lim); err == nil {
		t.Error("a key for a whole batch")
	}
}

func FuzzCloudEvents(f *testing.F) {
	f.Add(`{"specversion":"1.0","id":"i","source":"/s","type":"t","data":{"a":"\ud83d\ude00"},"x":true}`, false)
	f.Add(`[{"specversion":"1.0","id":"i","source":"/s","type":"t","datacontenttype":"text/plain","data":"\ud800"}]`, true)
	f.Add(`[{"data_base64":"AA=="},1]`, true)
	lim := wire.DefaultLimits()
	f.Fuzz(func(t *testing.T, content string, batch bool) {
		var items []wire.PublishItem
		var err *wire.Error
		if batch {
			items, err = batchedItems("t", new(head), []byte(content), lim)
		} else {
			var it wire.PublishItem
			it, err = itemOf("t", &head{kind: structuredBody}, []byte(content), lim)
			items = append(items, it)
		}
		if err != nil {
			return
		}
		for _, it := range items {
			if it.Err != nil {
				continue
			}
			e := &it.Event
			if codec.CheckID(e.ID) != nil || codec.CheckKey(e.Key, lim) != nil || codec.CheckHeaders(e.Headers, lim) != nil || it.HasTS &&
				codec.CheckTS(e.TS) != nil {
				t.Errorf("%s: let pass as %+v", content, e)
			}
			if !e.Binary && !json.Valid(e.Payload) {
				t.Errorf("%s: payload %s", content, e.Payload)
			}
		}
	})
}

// Two values of traceparent.
const (
	traceA = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	traceB = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203332-01"
)
