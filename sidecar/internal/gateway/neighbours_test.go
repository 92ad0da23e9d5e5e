package gateway_test

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/sidecar/internal/gateway/gatewaytest"
	"github.com/sluice-bus/sluice/test/require"
)

const greedyToken, otherToken = "greedy-token-0123456789", "other-token-0123456789"

// greedy is a client that sends requests and reads no answer.
type greedy struct {
	s     *gatewaytest.Sidecar
	conns []net.Conn
}

func (g *greedy) send(t testing.TB, text string) {
	t.Helper()
	c, err := gatewaytest.DialTight(t.Context(), "tcp", g.s.Addr)
	require.NoError(t, err)
	g.conns = append(g.conns, c)
	_, err = fmt.Fprint(c, text)
	require.NoError(t, err)
}

func (g *greedy) leave() {
	for _, c := range g.conns {
		c.Close()
	}
	g.conns = nil
}

// rude are requests whose answers are large, or whose bodies do not come whole.
func rude() []string {
	const pull = `{"wait_ms":60000,"opts":{"from":"earliest"}}`
	head := " HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + greedyToken + "\r\n"
	return []string{
		"GET /v1/topics/large/stream?from=earliest" + head + "\r\n",
		"GET /v1/topics/large/latest" + head + "\r\n",
		"GET /v1/topics/large/events/e1" + head + "\r\n",
		fmt.Sprintf("POST /v1/topics/large/groups/g/pull%sContent-Length: %d\r\n\r\n%s", head, len(pull), pull),
		"POST /v1/topics/large/events" + head + "Content-Length: 1000000\r\n\r\n" + strings.Repeat("x", 600_000),
	}
}

// startNeighbours starts a sidecar with two identities, and a topic that has 2 MiB.
func startNeighbours(t *testing.T) (*gatewaytest.Sidecar, *budget.Budget) {
	t.Helper()
	all := budget.New(budget.Bounds{Memory: 16 << 20, Places: budget.DefaultPlaces(), Identities: true})
	rights := "publish: ['*'], subscribe: ['*']"
	auth := gatewaytest.AuthOf(t, "tokens:\n"+gatewaytest.Entry(greedyToken, rights)+gatewaytest.Entry(otherToken, rights))
	s := gatewaytest.Start(t, gatewaytest.Setup{Budget: all, Access: auth.Access})
	for i := range 4 {
		body := `"` + strings.Repeat("x", 500_000) + `"`
		s.Want(t, 201, "", "POST", "/v1/topics/large/events", body, "Authorization: Bearer "+greedyToken,
			fmt.Sprint("Sluice-Id: e", i), fmt.Sprint("Sluice-Key: k", i))
	}
	return s, all
}

// TestOneIdentityStopsNoOther: whatever clients of one identity do, and do not read, a publish of
// another identity is answered; and what they held is given back.
func TestOneIdentityStopsNoOther(t *testing.T) {
	s, all := startNeighbours(t)
	rapid.Check(t, func(rt *rapid.T) {
		g := &greedy{s: s}
		defer g.leave()
		for range rapid.IntRange(1, 30).Draw(rt, "clients") {
			g.send(t, rapid.SampledFrom(rude()).Draw(rt, "request"))
		}
		s.Want(t, 201, "", "POST", "/v1/topics/mine/events", `"`+strings.Repeat("y", 1<<20-2)+`"`, "Authorization: Bearer "+otherToken)
	})
	gatewaytest.Eventually(t, "all but what a group still holds is given back", func() bool { return all.Used() < 4<<20 })
}

// TestAnswersThatNobodyReadsAreCounted: each request counts at least what its answer, or the part of
// its body that has come, takes.
func TestAnswersThatNobodyReadsAreCounted(t *testing.T) {
	for _, text := range rude() {
		s, all := startNeighbours(t)
		gatewaytest.Eventually(t, "nothing is held", func() bool { return all.Used() == 0 })
		g := &greedy{s: s}
		g.send(t, text)
		gatewaytest.Eventually(t, "counted: "+text[:40], func() bool { return all.Used() >= 500_000 })
		g.leave()
	}
}
