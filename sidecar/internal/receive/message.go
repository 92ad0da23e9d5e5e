// Package receive reads what clients send, messages and bodies of requests, within bounds of time
// and of the memory that all connections share.
package receive

import (
	"context"
	"io"
	"net/http"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// FreeBytes is how much of a message or body is read without memory of the budget, so that small
// publishes still pass when it is used up.
const FreeBytes = 4 << 10

// minRoom is the room that a Read needs to report the end.
const minRoom = 512

// NoMemory says that the budget has too little for the rest of a message or body.
type NoMemory struct{ Refusal *wire.Error }

func (e *NoMemory) Error() string { return e.Refusal.Error() }

// Message is a message or a body from its first byte until it is freed. Bytes beyond FreeBytes are
// taken from the budget before they are read.
type Message struct {
	B      []byte
	Budget *budget.Share
	AtMost int // the most that ReadAll can find
	// Expected is how long it says that it is; 0: unknown. Room for it is made once its first bytes have come.
	Expected int

	taken int // of the budget
}

// ReadAll reads all of r into B. After a *NoMemory B has the beginning, and r still has the rest.
func (m *Message) ReadAll(r io.Reader) error {
	for {
		if err := m.makeRoom(); err != nil {
			return err
		}
		end := cap(m.B)
		if m.taken == 0 {
			end = min(end, FreeBytes)
		}
		n, err := r.Read(m.B[len(m.B):end])
		m.B = m.B[:len(m.B)+n]
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// makeRoom makes room for at least one more byte.
func (m *Message) makeRoom() error {
	if len(m.B) >= FreeBytes && m.taken == 0 {
		if err := m.take(cap(m.B)); err != nil {
			return err
		}
	}
	if len(m.B) < cap(m.B) {
		return nil
	}
	size := min(max(2*cap(m.B), min(m.Expected, maxEager)+minRoom), m.AtMost+minRoom)
	if len(m.B) < FreeBytes {
		m.B = append(make([]byte, 0, max(size, FreeBytes)), m.B...)
		return nil
	}
	before := m.taken // both buffers exist for a moment
	if err := m.take(size); err != nil {
		return err
	}
	m.B = append(make([]byte, 0, size), m.B...)
	m.give(before)
	return nil
}

func (m *Message) take(n int) error {
	if err := m.Budget.TryTake(n); err != nil {
		return &NoMemory{wire.AsError(err)}
	}
	m.taken += n
	return nil
}

func (m *Message) give(n int) {
	m.Budget.Give(n)
	m.taken -= n
}

// keep frees a message that was read when its request ends, or, if it could not be read, at once.
func (m *Message) keep(r *http.Request, err error) {
	if err == nil && m.taken > 0 {
		context.AfterFunc(r.Context(), m.Free)
	} else {
		m.Free()
	}
}

// Free gives the memory back to the budget.
func (m *Message) Free() { m.give(m.taken) }
