package health

import (
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/grpc"
)

// The service to which a sidecar reports: each message is a [Report] as JSON, of at most
// MaxReportBytes, and nothing is answered. The stream's metadata names the sidecar, as policypb has it.
const (
	Service = "sluice.v1.Health"
	Method  = "/" + Service + "/Report"
	// Every is the interval of the reports.
	Every          = 5 * time.Second
	MaxReportBytes = 1 << 20
)

// Stream describes a stream of the service.
var Stream = grpc.StreamDesc{StreamName: "Report", ClientStreams: true}

// Parse reads a report, and checks its bounds.
func Parse(text []byte) (*Report, error) {
	r := &Report{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("the report cannot be read: %w", err)
	}
	var texts []string
	for _, row := range r.Groups.Set {
		texts = append(texts, row.Key.Topic, row.Key.Group, row.Value.BlockedBy)
	}
	for _, row := range r.DeadLetters.Set {
		texts = append(texts, row.Key.Topic, row.Key.Group)
	}
	for _, row := range r.Sources.Set {
		texts = append(texts, row.Key.Kind, row.Key.Name, row.Value.State)
	}
	if n := len(r.Refused); n > MaxRefused {
		return nil, fmt.Errorf("the report has %d refusals, at most %d are allowed", n, MaxRefused)
	}
	for i := range r.Refused {
		one := &r.Refused[i]
		if one.Events < 1 || one.Events > maxRefusedEvents {
			return nil, fmt.Errorf("the report has %d refused events of a topic, from 1 to %d are allowed", one.Events, int64(maxRefusedEvents))
		}
		texts = append(texts, one.Topic, string(one.Code))
		*one = one.known()
	}
	if p := r.Process; p != nil {
		texts = append(texts, p.StoreKind, p.StoreState, p.StoreError)
	}
	for _, text := range append(texts, r.Log...) {
		if len(text) > MaxTextBytes {
			return nil, fmt.Errorf("the report has a text of %d bytes, at most %d are allowed", len(text), MaxTextBytes)
		}
	}
	return r, nil
}

// Cut shortens a text to MaxTextBytes, at the end of a character.
func Cut(text string) string {
	if len(text) <= MaxTextBytes {
		return text
	}
	const more = "…"
	end := MaxTextBytes - len(more)
	for end > 0 && text[end]&0xC0 == 0x80 {
		end--
	}
	return text[:end] + more
}
