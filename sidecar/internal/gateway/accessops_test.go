package gateway_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/audit"
	"github.com/sluice-bus/sluice/sidecar/internal/gateway/gatewaytest"
	"github.com/sluice-bus/sluice/test/require"
)

// sentOp is a frame that was sent.
type sentOp struct {
	op, topic, members string
	batch              []string // the topics of a batch's events
}

// opMembers are the members of frames beside their op, corr and topic. The events of a batch are of the topic "u" where they name it.
var opMembers = map[string][]string{
	wire.OpPublish: {
		`"payload":1`, `"payload":1,"opts":{"id":"e1"}`, `"payload_base64":1`, `"opts":{}`, `"payload":1,"corr":7`, `"payload":1,"nonsense":1`,
		`"events":[{"payload":1},{"topic":"u","payload":2}]`, `"events":[1,{"payload":2},{"payload":3,"opts":7}]`, `"events":[]`,
		`"events":[{"payload":1},{"topic":"u","payload":2}],"payload":1`,
	},
	wire.OpSubscribe: {
		`"group":"g","opts":{"from":"earliest"}`, `"group":"g"`, `"opts":{"autoAck":true}`, `"opts":{"from":"x"}`, `"group":"g","nonsense":1`,
	},
	wire.OpUnsubscribe: {`"group":"g"`, `"group":"g"`, `"corr":"x"`},
	wire.OpAck:         {`"group":"g","id":"e1"`, `"group":"g","ids":["a","b"]`, `"group":"g"`, `"id":"e1"`},
	wire.OpNack:        {`"group":"g","id":"e1"`, `"group":"g","id":"e1","dead_letter":true`, `"group":"g","id":"e1","hold":true`},
	wire.OpModAck:      {`"group":"g","id":"e1","extend_ms":1000`, `"group":"g","id":"e1"`},
	wire.OpPause:       {`"group":"g"`, `"nonsense":1`},
	wire.OpResume:      {`"group":"g"`},
	wire.OpPing:        {`"corr":"x"`},
	wire.OpAuth:        {`"token":"app"`, `"token":"less"`},
	"NOTHING":          {`"corr":"x"`},
}

// batches are the topics of the events of those members that are a batch; "": the frame's.
var batches = map[string][]string{
	`"events":[{"payload":1},{"topic":"u","payload":2}]`:             {"", "u"},
	`"events":[{"payload":1},{"topic":"u","payload":2}],"payload":1`: {"", "u"},
	`"events":[1,{"payload":2},{"payload":3,"opts":7}]`:              {"", "", ""},
}

func drawOp(t *rapid.T) (o sentOp) {
	ops := slices.Sorted(maps.Keys(opMembers))
	o.op = rapid.SampledFrom(append(ops, wire.OpPublish, wire.OpSubscribe, wire.OpSubscribe)).Draw(t, "op")
	o.topic = rapid.SampledFrom([]string{"t", "t", "u", "none", "t.dlq", "no topic"}).Draw(t, "topic")
	o.members = rapid.SampledFrom(opMembers[o.op]).Draw(t, "members")
	for _, topic := range batches[o.members] {
		o.batch = append(o.batch, cmp.Or(topic, o.topic))
	}
	return o
}

// lines are the lines that the op of an identity must have, once it was answered.
func (o *sentOp) lines(who string, reply *gatewaytest.Frame) (lines []accessLine) {
	line := accessLine{Action: strings.ToLower(o.op), Topic: o.topic, Identity: who, Code: reply.Code}
	switch o.op {
	case wire.OpPing, wire.OpAuth, "NOTHING":
		return nil
	case wire.OpPublish:
		topics, codes := o.batch, make([]string, len(o.batch))
		if topics == nil {
			topics, codes = []string{o.topic}, []string{reply.Code}
		}
		for i := range reply.Results {
			codes[i] = reply.Results[i].Code
		}
		for _, topic := range slices.Compact(slices.Clone(topics)) {
			line := line
			line.Topic, line.Events, line.Refused = topic, new(int), new(int)
			for i, code := range codes {
				switch code = cmp.Or(code, reply.Code); {
				case topics[i] != topic:
				case code == "":
					*line.Events++
				default:
					*line.Refused++
					line.Code = code
				}
			}
			lines = append(lines, line)
		}
	default:
		if strings.Contains(o.members, `"group"`) {
			line.Group = "g"
		}
		lines = append(lines, line)
	}
	return slices.DeleteFunc(lines, func(l accessLine) bool { return strings.Contains(l.Topic, " ") }) // which is no topic
}

// texts shows lines for a comparison, in any order.
func texts(lines []accessLine) (out []string) {
	for _, l := range lines {
		text := fmt.Sprintf("%s %s %s %s %s", l.Action, l.Topic, l.Group, l.Identity, l.Code)
		if l.Events != nil {
			text += fmt.Sprintf(" %d events, %d refused", *l.Events, *l.Refused)
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}

// TestEachOpHasItsLine: the ops of a WebSocket, with any rights and members, have exactly one line each, those of a batch one for each
// of its topics, and it is true; so has the end of each subscription.
func TestEachOpHasItsLine(t *testing.T) {
	lines := &accessLines{byFrom: map[string][]accessLine{}}
	s, _, _ := accessListeners(t, lines)
	rapid.Check(t, func(rt *rapid.T) {
		lines.forgetAll()
		who := rapid.SampledFrom([]string{"app", "app", "less"}).Draw(rt, "who")
		c := s.DialAs(t, who)
		defer c.WS.CloseNow()
		var want []accessLine
		open := map[string]accessLine{}
		for range rapid.IntRange(1, 8).Draw(rt, "ops") {
			o := drawOp(rt)
			text := fmt.Sprintf(`{"op":%q,%s,"topic":%q}`, o.op, o.members, o.topic)
			require.NoError(rt, c.Write(websocket.MessageText, []byte(text)))
			reply, err := c.Read()
			for ; err == nil && reply.Op == wire.OpEvent; reply, err = c.Read() {
			}
			require.NoError(rt, err)
			of := o.lines(who, &reply)
			want = append(want, of...)
			if reply.Code != "" {
				if o.op == wire.OpAuth {
					break // the connection ends
				}
				continue
			}
			switch o.op {
			case wire.OpAuth:
				who = strings.Split(o.members, `"`)[3]
			case wire.OpSubscribe:
				open[of[0].Topic+"/"+of[0].Group] = of[0]
			case wire.OpUnsubscribe:
				delete(open, of[0].Topic+"/"+of[0].Group)
			}
		}
		c.WS.CloseNow()
		for _, line := range open {
			line.Action, line.Identity = audit.Unsubscribe, who
			want = append(want, line)
		}
		var got []string
		for deadline := time.Now().Add(gatewaytest.Patience); len(got) < len(want) && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			got = texts(lines.all())
		}
		if !slices.Equal(got, texts(want)) {
			rt.Fatalf("the lines are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(texts(want), "\n"))
		}
	})
}
