// Package wire has the types of Sluice's contract: the event, its receipt, the errors with their
// codes, the options of a subscription, and the limits on all of them. It knows the standard
// library alone.
package wire
