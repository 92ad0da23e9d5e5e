package xds

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
)

// maxReason bounds the stored reason of a rejection.
const maxReason = 2 << 10

// rejection returns the rejection to show of a refused response. A sidecar refuses all of a
// response; the policy is the first one that the reason quotes, else the first one of the response.
func (s sent) rejection(reason string) *fleet.Rejection {
	r := &fleet.Rejection{Reason: reason}
	if len(reason) > maxReason {
		r.Reason = strings.ToValidUTF8(reason[:maxReason], "") + "…"
	}
	first := len(reason) + 1
	quotes := func(name string, version int64) {
		at := strings.Index(reason, strconv.Quote(name))
		if at < 0 {
			at = len(reason)
		}
		if at < first {
			first, r.Policy, r.Version = at, name, version
		}
	}
	for _, resource := range s.resources {
		if resource.part == nil {
			quotes(resource.name, 0)
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(resource.part.Versions)) {
			quotes(name, resource.part.Versions[name])
		}
	}
	return r
}
