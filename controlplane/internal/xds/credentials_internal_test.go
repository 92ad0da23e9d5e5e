package xds

import (
	"bytes"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/policypb"
	"github.com/sluice-bus/sluice/test/require"
)

// Credentials are made again before they lapse, and go with the stream that they were made for,
// unless the sidecar has another one by then.
func TestCredentialsAreRenewed(t *testing.T) {
	issuer, err := access.NewPeerIssuer(bytes.Repeat([]byte{1}, access.PeerSeedBytes))
	require.NoError(t, err)
	c := newCredentials(issuer)
	key, err := access.NewPeerKey("a")
	require.NoError(t, err)
	held := func() string {
		r, there := c.cache.GetResources()[policypb.PeerCredentialName("a")]
		if !there {
			return ""
		}
		text, by, err := policypb.ReadPeerCredential(r.(*structpb.Struct))
		if err == nil {
			err = key.Take(text, by)
		}
		require.NoError(t, err)
		return text
	}
	first, second := &stream{nodeID: "a"}, &stream{nodeID: "a"}
	must := func(err error) {
		t.Helper()
		require.NoError(t, err)
	}
	must(c.give(first, key.Public()))
	was, began := held(), c.holders["a"].issued
	must(c.renew(began.Add(access.PeerCredentialRenew - time.Nanosecond)))
	if c.holders["a"].issued != began || held() != was {
		t.Error("it is made again too soon")
	}
	must(c.renew(began.Add(access.PeerCredentialRenew)))
	if c.holders["a"].issued == began || held() == "" {
		t.Error("it is not made again")
	}
	must(c.give(second, key.Public()))
	must(c.take(first))
	if held() == "" {
		t.Error("it has gone with the stream before")
	}
	must(c.take(second))
	if held() != "" || len(c.holders) != 0 {
		t.Error("it stays")
	}
	must(c.give(first, nil)) // it has no key
	must(newCredentials(nil).give(first, key.Public()))
}
