package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// append appends an event as a line or document: for people as
//
//	2026-01-02T15:04:05.000Z  3/1042  0197…  key=customer-17  {"order":17}
//
// and with -o wide also with its headers and tags.
func (f format) append(dst []byte, e *wire.Event, attempt int) []byte {
	switch f {
	case formatJSON:
		return append(codec.AppendEventJSON(dst, e), '\n')
	case formatYAML:
		out := bytes.NewBuffer(dst)
		_ = f.writeText(out, codec.AppendEventJSON(nil, e)) // what the codec writes is JSON
		return out.Bytes()
	}
	dst = append(dst, milliseconds(e.TS)...)
	if e.Spooled {
		dst = append(dst, "  spooled"...)
	} else {
		dst = fmt.Appendf(dst, "  %d/%d", e.Partition, e.Seq)
	}
	dst = fmt.Appendf(dst, "  %s", e.ID)
	if e.Key != "" {
		dst = fmt.Appendf(dst, "  key=%s", visible(e.Key))
	}
	if f == formatWide {
		for _, h := range e.Headers {
			dst = fmt.Appendf(dst, "  %s=%s", h.Name, visible(h.Value))
		}
		for _, tag := range e.Tags {
			dst = fmt.Appendf(dst, "  tag=%s", visible(tag))
		}
	}
	if attempt > 1 {
		dst = fmt.Appendf(dst, "  attempt=%d", attempt)
	}
	if e.Binary {
		dst = fmt.Appendf(dst, "  (%d bytes) %q\n", len(e.Payload), e.Payload)
	} else {
		dst = fmt.Appendf(dst, "  %s\n", e.Payload)
	}
	return dst
}

// visible quotes text that would break the line or hide in it.
func visible(text string) string {
	if quoted := fmt.Sprintf("%q", text); quoted != `"`+text+`"` || strings.ContainsRune(text, ' ') {
		return quoted
	}
	return text
}
