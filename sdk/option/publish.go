package option

import (
	"time"

	"github.com/sluice-bus/sluice/sdk/internal/settings"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// Publish sets something of a publisher.
type Publish func(*settings.Publish)

// Window bounds the events that have no result yet: their number (10,000) and their size in bytes
// (32 MiB). At the bound, publishing waits. An event that is larger than the bound in bytes is sent
// alone.
func Window(count, bytes int) Publish {
	return func(c *settings.Publish) {
		c.Need(count >= 1 && bytes >= 1, "Window(%d, %d): at least 1 event, and 1 byte", count, bytes)
		c.Count, c.Bytes = count, bytes
	}
}

// KeyedBatches lets events of one key share a request, up to 100 of them, so that few keys are as
// fast as many. The next request of the key is sent when all events of that one are answered. If
// the sidecar accepts some events of a request and asks for time for others, because a queue was
// full or the store failed in between, the others are logged later: with this option the order of
// the key is then lost.
func KeyedBatches() Publish {
	return func(c *settings.Publish) { c.KeyedBatches = true }
}

// StopKeyOnError concerns an event that fails for good: the events of its (topic, key) that were
// handed over after it and wait for it fail, too. Their error matches [sluice.ErrKeyStopped].
// Publishing them again, the failed one first, keeps the order of the key. Without this option the
// later events go on.
func StopKeyOnError() Publish {
	return func(c *settings.Publish) { c.StopKey = true }
}

// OnWait is called when the sidecar asks for time, once for each request, with its refusal and how
// long the events are held back. It must not wait.
func OnWait(f func(refusal *wire.Error, wait time.Duration)) Publish {
	return func(c *settings.Publish) {
		if f != nil {
			c.Asked = f
		}
	}
}
