package topics

import (
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// retryFull is when to try again where there are too many topics or groups, until some are deleted.
const retryFull = time.Minute

// TooMany refuses another one of the things that a flag bounds.
func TooMany(things string, there int, flag string, most int) *wire.Error {
	e := wire.Errorf(wire.Overloaded, "there are %d %s, and %s allows %d: delete some, or raise it", there, things, flag, most)
	e.RetryAfter = retryFull
	return e
}
