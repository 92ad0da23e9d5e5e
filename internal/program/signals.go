package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// untilSignal calls run with a context that the first signal ends, and returns what run returns.
// After a second signal it does not wait any longer: run is left behind, and the caller is expected
// to end the process.
//
// Where run gives up with context.Canceled after a signal, its work was cut short, and the error
// says so. A run for which the signal is the ordinary end, as for a server, returns nil.
func untilSignal(signals <-chan os.Signal, run func(context.Context) error) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	result := make(chan error, 1)
	go func() { result <- run(ctx) }()

	var first os.Signal
	for {
		select {
		case err := <-result:
			if first != nil && errors.Is(err, context.Canceled) {
				return signalError(first, "interrupted before it was done")
			}
			return err
		case s := <-signals:
			if first != nil {
				return signalError(s, "stopped at once by a second signal")
			}
			first = s
			cancel()
		}
	}
}

func signalError(s os.Signal, what string) error {
	status := StatusFailure
	if number, ok := s.(syscall.Signal); ok {
		status = 128 + int(number)
	}
	return &exitError{status: status, cause: fmt.Errorf("%s (%v)", what, s)}
}
