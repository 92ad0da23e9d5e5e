package codec

import (
	"strconv"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// AppendOK appends the OK frame of an op that answers nothing else.
func AppendOK(dst []byte, corr string, hasCorr bool) []byte {
	return append(appendOKHead(dst, corr, hasCorr), '}')
}

// AppendSubscribed appends the OK frame of a SUBSCRIBE without a group, with the positions that it
// starts right behind.
func AppendSubscribed(dst []byte, positions map[int]uint64, corr string, hasCorr bool) []byte {
	return append(AppendPositions(append(appendOKHead(dst, corr, hasCorr), `,"positions":`...), positions), '}')
}

// appendOKHead appends an OK frame up to the op's own members.
func appendOKHead(dst []byte, corr string, hasCorr bool) []byte {
	return appendCorr(append(dst, `{"op":"OK"`...), corr, hasCorr)
}

func appendCorr(dst []byte, corr string, hasCorr bool) []byte {
	if !hasCorr {
		return dst
	}
	return AppendString(append(dst, `,"corr":`...), corr)
}

// AppendReceipt appends the OK frame of a single publish.
func AppendReceipt(dst []byte, r *wire.Receipt, corr string, hasCorr bool) []byte {
	dst = append(appendOKHead(dst, corr, hasCorr), ',')
	return append(appendReceiptMembers(dst, r), '}')
}

// AppendReceiptBody appends the same without op and corr: HTTP's body.
func AppendReceiptBody(dst []byte, r *wire.Receipt) []byte {
	return append(appendReceiptMembers(append(dst, '{'), r), '}')
}

// appendReceiptMembers appends the receipt's members, without braces.
func appendReceiptMembers(dst []byte, r *wire.Receipt) []byte {
	dst = AppendString(append(dst, `"id":`...), r.ID)
	waits := r.DeliverAt != 0 && r.Seq == 0
	if !waits {
		dst = strconv.AppendInt(append(dst, `,"ts":`...), r.TS, 10)
	}
	if !r.Spooled && !waits {
		dst = strconv.AppendInt(append(dst, `,"partition":`...), int64(r.Partition), 10)
		dst = strconv.AppendUint(append(dst, `,"seq":`...), r.Seq, 10)
	}
	if r.DeliverAt != 0 {
		dst = strconv.AppendInt(append(dst, `,"deliver_at":`...), r.DeliverAt, 10)
	}
	if r.Duplicate {
		dst = append(dst, `,"duplicate":true`...)
	}
	if r.Spooled {
		return append(dst, `,"durability":"spool"`...)
	}
	return append(dst, `,"durability":"store"`...)
}

// AppendResults appends the OK frame of a batch; its errors are {code,msg}.
func AppendResults(dst []byte, results []wire.ResultItem, corr string, hasCorr bool) []byte {
	dst = append(appendOKHead(dst, corr, hasCorr), ',')
	return append(appendResultItems(dst, results, "msg"), '}')
}

// AppendResultsBody appends HTTP's body for a batch; its errors are {code,error}.
func AppendResultsBody(dst []byte, results []wire.ResultItem) []byte {
	return append(appendResultItems(append(dst, '{'), results, "error"), '}')
}

func appendResultItems(dst []byte, results []wire.ResultItem, sentence string) []byte {
	dst = append(dst, `"results":[`...)
	for i := range results {
		if i > 0 {
			dst = append(dst, ',')
		}
		if e := results[i].Err; e != nil {
			dst = append(appendErrorMembers(append(dst, '{'), e, sentence), '}')
		} else {
			dst = AppendReceiptBody(dst, &results[i].Receipt)
		}
	}
	return append(dst, ']')
}

// AppendErr appends an ERR frame.
func AppendErr(dst []byte, e *wire.Error, corr string, hasCorr bool) []byte {
	dst = appendErrorMembers(append(dst, `{"op":"ERR"`...), e, "msg")
	return append(appendCorr(dst, corr, hasCorr), '}')
}

// AppendErrorBody appends HTTP's body of an error.
func AppendErrorBody(dst []byte, e *wire.Error) []byte {
	return append(appendErrorMembers(append(dst, '{'), e, "error"), '}')
}

// appendErrorMembers appends the error's members; sentence names that of Msg.
func appendErrorMembers(dst []byte, e *wire.Error, sentence string) []byte {
	w := memberWriter{dst: dst}
	w.dst = AppendString(w.name("code"), string(e.Code))
	w.dst = AppendString(w.name(sentence), e.Msg)
	if ms, ok := e.RetryAfterMS(); ok {
		w.dst = strconv.AppendInt(w.name("retry_after_ms"), ms, 10)
	}
	w.text("scope", e.Scope)
	w.text("reason", e.Reason)
	if e.Seq > 0 {
		w.dst = strconv.AppendUint(w.name("seq"), e.Seq, 10)
	}
	if len(e.Fields) > 0 {
		w.dst = append(w.name("fields"), '[')
		for i, f := range e.Fields {
			if i > 0 {
				w.dst = append(w.dst, ',')
			}
			w.dst = AppendString(append(w.dst, `{"field":`...), f.Field)
			w.dst = append(AppendString(append(w.dst, `,"message":`...), f.Message), '}')
		}
		w.dst = append(w.dst, ']')
	}
	w.texts("missing", e.Missing)
	w.texts("ids", e.IDs)
	if e.Pointer != "" || e.Code == wire.SchemaViolation { // "" is the whole payload
		w.dst = AppendString(w.name("pointer"), e.Pointer)
	}
	return w.dst
}

// Form writes an event: AppendEventJSON, or another format.
type Form func(dst []byte, ev *wire.Event) []byte

// AppendEvent appends an EVENT frame; ackDeadlineMS is the time that is left.
func AppendEvent(dst []byte, topic, group string, form Form, ev *wire.Event, attempt int, ackDeadlineMS int64) []byte {
	dst = append(appendNames(append(dst, `{"op":"EVENT"`...), topic, group), ',')
	return append(appendDelivery(dst, form, ev, attempt, ackDeadlineMS), '}')
}

// AppendEventsStart begins an EVENTS frame: AppendEventsItem for each delivery and AppendEventsEnd
// follow.
func AppendEventsStart(dst []byte, topic, group string) []byte {
	return append(appendNames(append(dst, `{"op":"EVENTS"`...), topic, group), `,"events":[`...)
}

// AppendEventsItem appends one delivery to an EVENTS frame that was begun.
func AppendEventsItem(dst []byte, form Form, ev *wire.Event, attempt int, ackDeadlineMS int64) []byte {
	if dst[len(dst)-1] != '[' {
		dst = append(dst, ',')
	}
	return append(appendDelivery(append(dst, '{'), form, ev, attempt, ackDeadlineMS), '}')
}

// AppendEventsEnd finishes an EVENTS frame.
func AppendEventsEnd(dst []byte) []byte { return append(dst, "]}"...) }

func appendNames(dst []byte, topic, group string) []byte {
	dst = AppendString(append(dst, `,"topic":`...), topic)
	if group != "" {
		dst = AppendString(append(dst, `,"group":`...), group)
	}
	return dst
}

func appendDelivery(dst []byte, form Form, ev *wire.Event, attempt int, ackDeadlineMS int64) []byte {
	dst = form(append(dst, `"event":`...), ev)
	dst = strconv.AppendInt(append(dst, `,"ctx":{"attempt":`...), int64(attempt), 10)
	dst = strconv.AppendInt(append(dst, `,"ack_deadline_ms":`...), ackDeadlineMS, 10)
	return append(dst, '}')
}

// AppendAssignment appends an ASSIGNED or REVOKED frame, as op says.
func AppendAssignment(dst []byte, op, topic, group string, partitions []int) []byte {
	dst = AppendString(append(dst, `{"op":`...), op)
	dst = append(appendNames(dst, topic, group), `,"partitions":[`...)
	for i, p := range partitions {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, int64(p), 10)
	}
	return append(dst, "]}"...)
}
