// Package load publishes and consumes events at a running sidecar, and measures it.
//
// All connections are dialled, and subscribed, before the clock starts. With a rate the load is
// open: each send has a time at which it is meant to happen, and its latency counts from that time,
// so that a stall of the sidecar shows in every event that it held up and not in the one that was
// under way. Without a rate the load is closed: a latency counts from the send, and the next send
// waits for a place in the pipeline.
package load
