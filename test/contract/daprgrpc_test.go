package contract

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/sluice-bus/sluice/internal/daprpb"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

const unlimited = `{publish: {rate: 0}, connection: {rate: 0}, partitions: 1, delivery: {max_attempts: 2, backoff: {min: 1ms, max: 2ms}}}`

// daprClient is a client of Dapr's API at a sidecar.
func daprClient(t testing.TB, s *server) (daprpb.DaprClient, *grpc.ClientConn) {
	t.Helper()
	conn, err := grpc.NewClient(s.DaprGRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return daprpb.NewDaprClient(conn), conn
}

// wantStatus checks an error's status and the code of Sluice in its details, and whether it says when to try again.
func wantStatus(t testing.TB, err error, code codes.Code, reason string, retry bool) {
	t.Helper()
	s := status.Convert(err)
	var info *errdetails.ErrorInfo
	var again *errdetails.RetryInfo
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			info = d
		case *errdetails.RetryInfo:
			again = d
		}
	}
	if s.Code() != code || info.GetReason() != reason || info.GetDomain() != "sluice" || (again.GetRetryDelay().AsDuration() > 0) != retry {
		t.Errorf("%v with %v and %v; want %v, %s", s, info, again, code, reason)
	}
}

// "gRPC on --dapr-grpc-listen: PublishEvent, BulkPublishEvent (and Alpha1), GetMetadata; everything else UNIMPLEMENTED,
// naming what Sluice is. Statuses … with google.rpc.ErrorInfo: the code of section 3 in capitals, domain sluice, and
// RetryInfo where there is a time."
func TestDaprGRPCPublish(t *testing.T) {
	t.Parallel()
	s := own(t, `[{name: "*", publish: {rate: 0}, connection: {rate: 0}, partitions: 1}, {name: p, paused: true}, `+
		`{name: l, publish: {rate: 0.01, burst: 1}}, {name: none, auto_create: false}]`,
		"--dapr-grpc-listen", "127.0.0.1:0", "--dapr-app-id", "shop")
	c, conn := daprClient(t, s)
	publish := func(topic, contentType, data string, meta map[string]string) error {
		_, err := c.PublishEvent(t.Context(), &daprpb.PublishEventRequest{
			PubsubName: "any", Topic: topic, Data: []byte(data), DataContentType: contentType, Metadata: meta,
		})
		return err
	}
	id := func(id string) map[string]string { return map[string]string{"cloudevent.id": id, "partitionKey": "k"} }
	require.NoError(t, publish("t", "application/json", `{"n": 1.5}`, id("json")))
	require.NoError(t, publish("t", "application/json", `{"n":1.5}`, id("json"))) // the same again
	require.NoError(t, publish("t", "", `text`, id("text")))
	require.NoError(t, publish("t", "application/cloudevents+json", `{"specversion":"1.0","id":"ce","source":"/s","type":"x","data":1}`, nil))
	if e := s.replayed(t, "t", "json"); e.Text("payload.n") != "1.5" || e.Text("key") != "k" || e.Text("headers.ce-source") != "shop" {
		t.Errorf("%v", e)
	}
	if e := s.replayed(t, "t", "text"); e.Text("payload_base64") != "dGV4dA==" || e.Text("headers.content-type") != "text/plain" {
		t.Errorf("%v", e)
	}
	if e := s.replayed(t, "t", "ce"); e.Text("payload") != "1" || e.Text("headers.ce-source") != "/s" {
		t.Errorf("%v", e)
	}
	wantStatus(t, publish("t", "application/json", `2`, id("json")), codes.AlreadyExists, "CONFLICT", false)
	wantStatus(t, publish("t", "application/json", `{`, nil), codes.InvalidArgument, "BAD_JSON", false)
	wantStatus(t, publish("_t", "", `x`, nil), codes.InvalidArgument, "BAD_REQUEST", false)
	wantStatus(t, publish("t", "", strings.Repeat("x", 1<<20+1), nil), codes.InvalidArgument, "PAYLOAD_TOO_LARGE", false)
	wantStatus(t, publish("none", "", `x`, nil), codes.NotFound, "NOT_FOUND", false)
	wantStatus(t, publish("p", "", `x`, nil), codes.Unavailable, "TOPIC_PAUSED", false)
	require.NoError(t, publish("l", "", `x`, nil))
	wantStatus(t, publish("l", "", `x`, nil), codes.ResourceExhausted, "RATE_LIMITED", true)

	bulk := &daprpb.BulkPublishRequest{Topic: "b", Metadata: map[string]string{"partitionKey": "k"}}
	bulk.Entries = []*daprpb.BulkPublishRequestEntry{
		{EntryId: "1", Event: []byte("x"), Metadata: map[string]string{"cloudevent.id": "b1"}},
		{EntryId: "2", Event: []byte("{"), ContentType: "application/json"},
	}
	for _, call := range []func(context.Context, *daprpb.BulkPublishRequest, ...grpc.CallOption) (*daprpb.BulkPublishResponse, error){
		c.BulkPublishEvent, c.BulkPublishEventAlpha1,
	} {
		res, err := call(t.Context(), bulk)
		failed := res.GetFailedEntries()
		if err != nil || len(failed) != 1 || failed[0].GetEntryId() != "2" || failed[0].GetError() == "" {
			t.Errorf("%v %v", res, err)
		}
	}
	if n := s.replay(t, "topic=b&key=k").Number(t, "count"); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
	bulk.Entries[1].EntryId = "1"
	_, refused := c.BulkPublishEvent(t.Context(), bulk)
	wantStatus(t, refused, codes.InvalidArgument, "BAD_REQUEST", false)

	meta, err := c.GetMetadata(t.Context(), &daprpb.GetMetadataRequest{})
	if err != nil || meta.GetId() != "shop" || meta.GetRuntimeVersion() == "" {
		t.Errorf("%v %v", meta, err)
	}
	err = conn.Invoke(t.Context(), "/dapr.proto.runtime.v1.Dapr/GetState", &emptypb.Empty{}, &emptypb.Empty{})
	if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "Sluice") {
		t.Error(err)
	}
}

// daprStream is a subscription by a stream.
type daprStream struct {
	testing.TB
	grpc.BidiStreamingClient[daprpb.SubscribeTopicEventsRequestAlpha1, daprpb.SubscribeTopicEventsResponseAlpha1]
}

func subscribeByStream(t testing.TB, c daprpb.DaprClient, topic, deadLetters string) *daprStream {
	t.Helper()
	stream, err := c.SubscribeTopicEventsAlpha1(t.Context())
	require.NoError(t, err)
	first := &daprpb.SubscribeTopicEventsRequestInitialAlpha1{PubsubName: "pubsub", Topic: topic}
	if deadLetters != "" {
		first.DeadLetterTopic = &deadLetters
	}
	require.NoError(t, stream.Send(&daprpb.SubscribeTopicEventsRequestAlpha1{
		SubscribeTopicEventsRequestType: &daprpb.SubscribeTopicEventsRequestAlpha1_InitialRequest{InitialRequest: first},
	}))
	if in, err := stream.Recv(); err == nil && in.GetInitialResponse() == nil {
		t.Fatalf("%v", in)
	} else if err != nil {
		wantStatus(t, err, codes.InvalidArgument, "BAD_REQUEST", false)
		return nil
	}
	return &daprStream{t, stream}
}

// next is the id of the next event.
func (d *daprStream) next() string {
	d.Helper()
	in, err := d.Recv()
	if err != nil {
		d.Fatal(err)
	}
	return in.GetEventMessage().GetId()
}

func (d *daprStream) say(id string, said daprpb.TopicEventResponse_TopicEventResponseStatus) {
	d.Helper()
	require.NoError(d.TB, d.Send(&daprpb.SubscribeTopicEventsRequestAlpha1{
		SubscribeTopicEventsRequestType: &daprpb.SubscribeTopicEventsRequestAlpha1_EventProcessed{
			EventProcessed: &daprpb.SubscribeTopicEventsRequestProcessedAlpha1{Id: id, Status: &daprpb.TopicEventResponse{Status: said}},
		},
	}))
}

// "SubscribeTopicEventsAlpha1": the group is APPID.PUBSUBNAME, and the answers settle as those of applications do.
func TestDaprStream(t *testing.T) {
	t.Parallel()
	s := own(t, `[{name: "*", `+unlimited[1:]+`]`, "--dapr-grpc-listen", "127.0.0.1:0", "--dapr-app-id", "shop")
	c, _ := daprClient(t, s)
	if subscribeByStream(t, c, "t", "other.dlq") != nil || subscribeByStream(t, c, "a b", "") != nil {
		t.Error("subscriptions that cannot be served are taken")
	}
	d, letters := subscribeByStream(t, c, "t", "dead"), subscribeByStream(t, c, "dead", "")
	for _, id := range []string{"ok", "drop", "fail"} {
		s.put(t, "t", id, "1", "Sluice-Key: k")
	}
	const ok, again, drop = daprpb.TopicEventResponse_SUCCESS, daprpb.TopicEventResponse_RETRY, daprpb.TopicEventResponse_DROP
	for _, step := range []struct {
		id   string
		said daprpb.TopicEventResponse_TopicEventResponseStatus
	}{{"ok", ok}, {"drop", drop}, {"fail", again}, {"fail", again}} {
		if id := d.next(); id != step.id {
			t.Fatalf("%s, want %s", id, step.id)
		}
		d.say(step.id, step.said)
	}
	for _, id := range []string{"drop", "fail"} {
		if got := letters.next(); got != id {
			t.Errorf("%s, want %s", got, id)
		}
		letters.say(id, ok)
	}
	testkit.Eventually(t, "all is settled", func() bool {
		return s.group(t, "t", "shop.pubsub").Number(t, "lag") == 0 && s.group(t, "dead", "shop.pubsub").Number(t, "lag") == 0
	})
	reasons := map[string]string{}
	for _, e := range s.replay(t, "topic=dead").List("events") {
		reasons[e.Text("headers.sluice-dlq-id")] = e.Text("headers.sluice-dlq-reason")
	}
	if len(reasons) != 2 || reasons["drop"] != "dropped" || !strings.Contains(reasons["fail"], "RETRY") {
		t.Errorf("dead letters: %v", reasons)
	}

	s.put(t, "t", "returned", "1")
	if id := d.next(); id != "returned" {
		t.Fatal(id)
	}
	require.NoError(t, d.CloseSend())
	if id := subscribeByStream(t, c, "t", "").next(); id != "returned" {
		t.Error(id)
	}
}

// dead is the list of a topic's dead letters as "ID STATE", oldest first, their dlq_ids, and how many there were a moment before or after.
func (s *server) dead(t testing.TB, topic string) (list []string, letters map[string]string, total int64) {
	t.Helper()
	letters = map[string]string{}
	for cursor := ""; ; {
		page := testkit.Call(t, "GET", s.URL()+"/v1/topics/"+topic+"/dlq?order=asc&limit=2"+cursor, "").JSON(t)
		for _, d := range page.List("dead_letters") {
			list = append(list, d.Text("id")+" "+d.Text("state"))
			letters[d.Text("id")] = d.Text("dlq_id")
		}
		if page["next"] == nil {
			return list, letters, page.Number(t, "total")
		}
		cursor = "&cursor=" + page.Text("next")
	}
}

// "deadLetterTopic gets what is dropped or dead instead of <topic>.dlq": these dead letters are listed, redriven, discarded
// and erased with their topic as those of <topic>.dlq are, and nothing else of that topic is.
func TestDeadLettersInAnotherTopic(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	policies, args := `[{name: "*", `+unlimited[1:]+`]`, []string{"--dapr-grpc-listen", "127.0.0.1:0", "--dapr-app-id", "shop"}
	s := h.start(t, policies, args...)
	c, _ := daprClient(t, s)
	const ok, drop = daprpb.TopicEventResponse_SUCCESS, daprpb.TopicEventResponse_DROP
	die := func(d *daprStream, topic string, ids ...string) {
		t.Helper()
		for _, id := range ids {
			s.put(t, topic, id, "1", "Sluice-Key: "+id)
			if got := d.next(); got != id {
				t.Fatalf("%s, want %s", got, id)
			}
			d.say(id, drop)
			testkit.Eventually(t, id+" is a dead letter", func() bool { return s.group(t, topic, "shop.pubsub").Number(t, "lag") == 0 })
		}
	}
	wantDead := func(topic string, want ...string) (letters map[string]string) {
		t.Helper()
		testkit.Eventually(t, fmt.Sprintf("the dead letters of %s are %q", topic, want), func() bool {
			list, all, total := s.dead(t, topic)
			letters = all
			return slices.Equal(list, want) && total == int64(len(want))
		})
		return letters
	}
	die(subscribeByStream(t, c, "t", "dead"), "t", "a", "b", "c", "erased")
	die(subscribeByStream(t, c, "u", "dead"), "u", "erased")
	s.put(t, "dead", "plain", "1", "Sluice-Key: erased")
	s.Kill()
	s = h.start(t, policies, args...)
	c, _ = daprClient(t, s)
	letters := wantDead("t", "a dead", "b dead", "c dead", "erased dead")
	wantDead("u", "erased dead")
	wantDead("dead")
	testkit.Eventually(t, "the metrics have them by the topic on which they died", func() bool {
		metrics := string(testkit.Call(t, "GET", s.OpsURL()+"/metrics", "").Body)
		return regexp.MustCompile(`sluice_dead_letters\{[^}]*topic="t"[^}]*\} 4\n`).MatchString(metrics) &&
			regexp.MustCompile(`sluice_dead_letters\{[^}]*topic="u"[^}]*\} 1\n`).MatchString(metrics)
	})

	for _, header := range []string{"Sluice-Id: " + letters["a"] + "-1", "Sluice-Header-sluice-dlq-id: a"} {
		if a := s.post(t, "dead", "1", header); a.Status != 400 {
			t.Errorf("publishing what looks like a dead letter, with %s: %d %s", header, a.Status, a.Body)
		}
	}
	change := func(verb, id string) {
		t.Helper()
		a := testkit.Call(t, "POST", s.URL()+"/v1/topics/t/dlq/"+verb, fmt.Sprintf(`{"dlq_ids":[%q]}`, letters[id]))
		if !strings.HasSuffix(strings.TrimSpace(string(a.Body)), `{"done":1,"of":1,"ok":true}`) {
			t.Errorf("%s %s: %s", verb, id, a.Body)
		}
	}
	change("redrive", "a")
	change("redrive", "b")
	wantDead("t", "a redriven", "b redriven", "c dead", "erased dead")
	d := subscribeByStream(t, c, "t", "dead")
	for range 2 {
		id := d.next()
		d.say(id, map[string]daprpb.TopicEventResponse_TopicEventResponseStatus{"a": ok, "b": drop}[id])
	}
	again := wantDead("t", "c dead", "erased dead", "b dead")
	if again["b"] != letters["b"] {
		t.Errorf("dead again it is %s, and was %s", again["b"], letters["b"])
	}
	life := testkit.Call(t, "GET", s.URL()+"/v1/topics/t/events/b", "").JSON(t)
	if g := life.List("groups"); len(g) != 1 || g[0].Text("dead_letter.topic") != "dead" || g[0].Text("dead_letter.id") != letters["b"]+"-1" {
		t.Errorf("%v", life)
	}
	change("discard", "c")
	testkit.Call(t, "DELETE", s.URL()+"/v1/topics/t/events?key=erased", "")
	wantDead("t", "b dead")
	wantDead("u", "erased dead")
	require.NoError(t, d.CloseSend())
	testkit.Eventually(t, "nobody is subscribed", func() bool { return len(s.group(t, "t", "shop.pubsub").List("members")) == 0 })
	if a := testkit.Call(t, "DELETE", s.URL()+"/v1/topics/t?dry_run=1", ""); a.JSON(t).Number(t, "dead_letters") != 1 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	testkit.Call(t, "DELETE", s.URL()+"/v1/topics/t", "")
	var left []string
	for _, e := range s.replay(t, "topic=dead").List("events") {
		left = append(left, e.Text("headers.sluice-dlq-topic")+"/"+e.Text("key"))
	}
	if strings.Join(left, " ") != "u/erased /erased" {
		t.Errorf("%q is left", left)
	}
}

// "With auth, dapr-api-token (header, gRPC metadata) is the token; health routes need none."
func TestDaprTokens(t *testing.T) {
	t.Parallel()
	auth := filepath.Join(t.TempDir(), "auth.yaml")
	require.NoError(t, os.WriteFile(auth, fmt.Appendf(nil,
		"tokens:\n  - {name: app, sha256: %x, publish: [t], subscribe: [t], groups: [shop.pubsub]}\n", sha256.Sum256([]byte("secret"))), 0o600))
	s := own(t, `[]`, "--auth-config", auth, "--dapr-grpc-listen", "127.0.0.1:0", "--dapr-app-id", "shop")
	for token, want := range map[string]int{"secret": 204, "wrong": 401, "": 401} {
		a := testkit.Call(t, "POST", s.URL()+"/v1.0/publish/p/t", "x", "dapr-api-token: "+token)
		if a.Status != want || want != 204 && a.JSON(t).Text("errorCode") != "UNAUTHORIZED" {
			t.Errorf("%q: %d %s", token, a.Status, a.Body)
		}
	}
	if a := testkit.Call(t, "GET", s.URL()+"/v1.0/healthz", ""); a.Status != 204 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	c, _ := daprClient(t, s)
	publish := func(token, topic string) error {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "dapr-api-token", token)
		_, err := c.PublishEvent(ctx, &daprpb.PublishEventRequest{Topic: topic})
		return err
	}
	require.NoError(t, publish("secret", "t"))
	wantStatus(t, publish("wrong", "t"), codes.Unauthenticated, "UNAUTHORIZED", false)
	wantStatus(t, publish("secret", "u"), codes.PermissionDenied, "FORBIDDEN", false)
	for deadLetters, want := range map[string]string{"": "", "t.dlq": "", "u": "publish"} {
		stream, err := c.SubscribeTopicEventsAlpha1(metadata.AppendToOutgoingContext(t.Context(), "dapr-api-token", "secret"))
		require.NoError(t, err)
		require.NoError(t, stream.Send(&daprpb.SubscribeTopicEventsRequestAlpha1{
			SubscribeTopicEventsRequestType: &daprpb.SubscribeTopicEventsRequestAlpha1_InitialRequest{
				InitialRequest: &daprpb.SubscribeTopicEventsRequestInitialAlpha1{PubsubName: "pubsub", Topic: "t", DeadLetterTopic: &deadLetters},
			}}))
		if _, err = stream.Recv(); (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("dead letters to %q: %v", deadLetters, err)
		}
	}
}
