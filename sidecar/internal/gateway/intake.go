package gateway

import (
	"errors"
	"io"

	"github.com/sluice-bus/sluice/sidecar/internal/budget"
)

// freeIntake is how much of a message or body is read without memory of the budget, so that small
// publishes still pass when others have used up the budget.
const freeIntake = 4 << 10

// intake is a message or a body from its first byte until it is released. Bytes beyond freeIntake
// are taken from the budget before they are read.
type intake struct {
	b      []byte
	budget *budget.Budget
	taken  int // of the budget
	atMost int // the most that r gives
}

// errNoMemory says that the budget has too little for the rest of the message or body.
var errNoMemory = errors.New("the budget of all connections is used up")

// readAll reads all of r into b. After errNoMemory b has the beginning, and r still has the rest.
func (in *intake) readAll(r io.Reader) error {
	for {
		if err := in.makeRoom(); err != nil {
			return err
		}
		end := cap(in.b)
		if in.taken == 0 {
			end = min(end, freeIntake)
		}
		n, err := r.Read(in.b[len(in.b):end])
		in.b = in.b[:len(in.b)+n]
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// makeRoom makes room for at least one more byte.
func (in *intake) makeRoom() error {
	if len(in.b) >= freeIntake && in.taken == 0 && !in.take(cap(in.b)) {
		return errNoMemory
	}
	if len(in.b) < cap(in.b) {
		return nil
	}
	size := min(2*cap(in.b), in.atMost+minRoom)
	if len(in.b) < freeIntake {
		in.b = append(make([]byte, 0, max(size, freeIntake)), in.b...)
		return nil
	}
	before := in.taken // both buffers exist for a moment
	if !in.take(size) {
		return errNoMemory
	}
	in.b = append(make([]byte, 0, size), in.b...)
	in.give(before)
	return nil
}

// minRoom is the room that a Read needs to report the end.
const minRoom = 512

func (in *intake) take(n int) bool {
	if !in.budget.TryTake(n) {
		return false
	}
	in.taken += n
	return true
}

func (in *intake) give(n int) {
	in.budget.Give(n)
	in.taken -= n
}

// free gives the memory back to the budget.
func (in *intake) free() { in.give(in.taken) }
