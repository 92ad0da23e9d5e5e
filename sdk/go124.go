package sluice

import (
	"errors"
	"sync"
)

// Functions that the standard library of Go 1.24 lacks.

// asType is errors.AsType of Go 1.26.
func asType[E error](err error) (e E, ok bool) {
	ok = errors.As(err, &e)
	return e, ok
}

// goIn is WaitGroup.Go of Go 1.25.
func goIn(wg *sync.WaitGroup, f func()) {
	wg.Add(1)
	go func() {
		defer wg.Done()
		f()
	}()
}
