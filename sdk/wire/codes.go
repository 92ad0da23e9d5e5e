package wire

import "slices"

// A CodeInfo is what there is to know of a code.
type CodeInfo struct {
	Code   Code
	Status int // of HTTP
	// When says when an answer has the code, and Remedy what its reader can do.
	When, Remedy string
}

// Codes is the one table of codes: their HTTP statuses, and the reference of errors, are made of it.
func Codes() []CodeInfo { return slices.Clone(codes) }

var codes = []CodeInfo{
	{BadJSON, 400, "The frame or the body is not JSON.",
		"Send JSON in UTF-8. With curl, put the body in single quotation marks; for bytes that are not JSON give a `Content-Type`."},
	{BadRequest, 400, "A field is missing or invalid, is not known here, or a batch is larger than a bucket's burst; the " +
		"sentence names it, and the nearest " +
		"that is known. " +
		"415: the body has a content encoding other than gzip and zstd.",
		"Correct the field. The same request fails again: do not retry it."},
	{Unauthorized, 401, "There is no token, or it is not known or has expired.",
		"Send `Authorization: Bearer TOKEN` with a token of the `--auth-config` file of this program, or a valid JSON Web Token."},
	{Forbidden, 403, "The token may not do this, or not on this topic; or the web page's origin is not allowed.",
		"Add the right or the topic to the token's entry in `--auth-config`, or the origin to `--allowed-origins`."},
	{NotFound, 404, "There is no such route, topic, group, policy or event. 405: the route has other methods, which `Allow` names.",
		"Look the name up: `sluice topics`, `sluice groups list TOPIC`, `sluice policy list`. " +
			"With `auto_create: false` make the topic: `sluice topics create TOPIC`."},
	{AlreadySubscribed, 409, "This connection has a subscription to the topic and group already.",
		"Use that subscription, unsubscribe first, or open another connection."},
	{NotSubscribed, 409, "This connection has no subscription to the topic and group, so it cannot ack or pause there.",
		"Subscribe again after each reconnect, then ack what this subscription delivers."},
	{UnknownID, 409, "The event is not in flight here: it is settled, or was given to another member after its deadline.",
		"Stop work on the event. If it happens often, extend in time (`MODACK`), or raise `ackTimeoutMs`."},
	{StaleLease, 409, "The event was delivered again since this lease was given, or its group was moved.",
		"Stop work on the event: another member has it. If it happens often, extend the lease in time, or raise `ackTimeoutMs`."},
	{Conflict, 409, "The topic holds the id already, with another key, other headers or another payload; `seq` is the stored event's. " +
		"Payloads are compared as JSON: `1.0` equals `1`, and the order of members does not count. Trace headers and " +
		"`sluice-…` are not compared.",
		"Use another id. The stored event stays as it is; `sluice trace TOPIC ID` shows it."},
	{PreconditionFailed, 412, "`If-Match` or `If-None-Match` does not hold: somebody else has changed the policy.",
		"Read it again, and repeat the change on what is there."},
	{OutOfRange, 416, "Retention has removed what is behind a position; the sentence names the earliest that is there.",
		"Start at that position, or at `earliest`. To keep events longer, raise `retention.ttl` or `retention.max_bytes` of the policy."},
	{InUse, 409, "A topic or a group cannot go while somebody is subscribed; the sentence says who, and at which sidecar.",
		"Stop these members: `sluice groups show TOPIC GROUP` lists them. Then try again."},
	{PayloadTooLarge, 413, "A payload, its headers, a batch or a body is over its limit; the sentence names the limit.",
		"Send less, or keep large contents elsewhere and publish where. `--limits` of the sidecar raises a limit."},
	{InvalidPolicy, 422, "The policy has bad fields; `fields` names every one. Nothing was changed.",
		"Correct these fields. `docs/reference/policy.md` has what each of them takes."},
	{PartialFleet, 502, "A part of the fleet could not be asked; `missing` names it.",
		"Start the sidecars that are missing, ask with `partial=ok`, or, if one is gone for good, `sluice fleet forget NODE`."},
	{SchemaViolation, 422, "The topic's schema refuses the payload; `pointer` is where.",
		"Correct the payload. `GET /v1/topics/TOPIC/schema` has the schema in force."},
	{RateLimited, 429, "A token bucket is empty; `scope` says which one: of the `connection`, `topic`, `fleet` or `tenant`.",
		"Wait for `retry_after_ms`, then send again with the same id. `publish.rate` and `publish.burst` of the policy raise " +
			"the limit, " +
			"`connection.rate` of the policy `*` that of a connection."},
	{Overloaded, 503, "A bounded queue, the memory, the disk (`reason: disk`), the spool, or a topic's room for scheduled events " +
		"(`reason: scheduled`) is full; the sentence says which one.",
		"Wait for `retry_after_ms`, then send again with the same id. If it lasts, see `docs/operating.md`."},
	{StoreUnavailable, 503, "The store cannot be reached, does not take writes, or the program is stopping.",
		"Wait for `retry_after_ms`, then send again with the same id: whether it was stored is not known, and an id is stored once. " +
			"Operators: `GET /readyz` of the ops listener says what is wrong."},
	{TopicPaused, 503, "The topic's policy pauses it.",
		"Wait until an operator ends the pause: `sluice policy resume TOPIC`."},
	{UnknownOp, 400, "The frame's `op` is not one of WebSocket's.",
		"Correct `op`: `sidecar/API.md` lists them, in capitals."},
	{Internal, 500, "A defect of the program.",
		"Look for the error in the program's log, and report it. A publish may be repeated with the same id."},
}

// statusOf is the HTTP status of each code.
var statusOf = func() map[Code]int {
	all := map[Code]int{}
	for _, c := range codes {
		all[c.Code] = c.Status
	}
	return all
}()
