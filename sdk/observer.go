package sluice

import "time"

// An Observer has functions that a client calls, for metrics. They may be nil. Several goroutines
// call them at once, and wait for them.
type Observer struct {
	// Published: an event has its result; took is the time since it was handed over.
	Published func(topic string, took time.Duration, err error)
	// Delivered: a handler begins with an event; waited is the time since it came.
	Delivered func(topic, group string, attempt int, waited time.Duration)
	// Handled: a handler has returned, for an event or for one of its batch.
	Handled func(topic, group string, took time.Duration, err error)
	// Retried: the handler of an event has failed, and is called again after wait.
	Retried func(topic, group string, wait time.Duration, err error)
	// Settled: an ack or nack was answered, or is known to be lost.
	Settled func(topic, group string, ack bool, took time.Duration, err error)
	// Connected: an attempt to connect has ended.
	Connected func(took time.Duration, err error)
}

// WithObserver makes the client call an observer's functions.
func WithObserver(o Observer) Option { return func(c *config) { c.observer = o } }
