package xds

import (
	"strconv"
	"strings"

	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
)

// maxReason is how much of a sidecar's reason is kept.
const maxReason = 2 << 10

// rejection is what is shown of a response that was refused. A sidecar refuses
// all of a response; the policy is the first one that the reason quotes, else
// the first one of the response.
func (s sent) rejection(reason string) *fleet.Rejection {
	r := &fleet.Rejection{Reason: reason}
	if len(reason) > maxReason {
		r.Reason = strings.ToValidUTF8(reason[:maxReason], "") + "…"
	}
	first := len(reason) + 1
	for i, resource := range s.resources {
		at := strings.Index(reason, strconv.Quote(resource.name))
		if at < 0 {
			at = len(reason)
		}
		if i == 0 || at < first {
			first, r.Policy, r.Version = at, resource.name, resource.version
		}
	}
	return r
}
