// Package quota divides the rates of fleet-wide topics (policy publish.scope: fleet) among the
// sidecars, and passes on the counts of all sidecars.
//
// # The bound
//
// A topic has a rate R and a burst B. All sidecars with a share together accept in any window of t
// seconds at most
//
//	B + max(1, R × 0.25 s) + R × t
//
// even if messages are late or lost and sidecars come and go. Over 10 s that is R × time and 2.5 %,
// plus the burst (below 4/s: and one publish). A sidecar uses its fallback when its share has ended
// without a new one, because it lost the control plane or because the control plane has just
// started. Beyond the bound, each such sidecar accepts at most max(1, B ÷ known) + R ÷ known × t,
// where known is how many sidecars it knows of. So while k of them are cut off and the control
// plane serves the others, up to k × R ÷ known a second more are accepted. A change of R or B acts
// once it has reached the sidecars; until then the old bound holds. Tokens that a sidecar gives
// back, because an event was refused later on, count when they are used again, which loosens the
// bound as it does for any bucket (package limit of the sidecar).
//
// # Why it holds
//
// The tokens of a topic are in its reservoir, here, or in the buckets of sidecars. The server keeps
// two sums over all sidecars: of the rates at which their buckets may be filling, and of the tokens
// that these may hold. A lower share counts as the higher one before it until the sidecar has
// acknowledged it, or the lifetime of the higher one has passed. Always
//
//	sum of rates ≤ R        sum of bursts + reservoir ≤ B + slack
//
// since shares are raised only out of what is free: lower first, raise after. The reservoir fills
// with R less the sum of rates, so all tokens together come at R at most. A grant moves tokens from
// the reservoir to a bucket, and tokens above a lower burst move back. So the events accepted in a
// window are at most the tokens at its start and R × t.
//
// A lifetime needs no clocks that agree: a share says which report of the sidecar it answers, and
// the sidecar counts the lifetime from when it made that report, which was before it arrived here.
// The two clocks' rates may differ by 1 %.
//
// A control plane that has just started, or got a new part of a topic, does not know which shares
// may be acting, so for one lifetime it hands out nothing. Sidecars go on with their shares, then
// use their fallback; tokens that a fallback saved up end with the first share. The reported rates
// of fallbacks count in the sum of rates like any other, so a sidecar that leaves its fallback gets
// a share of what the others leave. How much of a burst was used before is not known either: the
// reservoir fills at the rate since the start. If a topic was not fleet-wide at the start, no
// sidecar has any of its tokens, and the reservoir is full.
//
// # The division
//
// Demand is the number of events per second that a sidecar let through and refused, as a moving
// average of 0.4 s. Each round (every 100 ms, and at once when a sidecar waits) divides R: each
// sidecar gets its demand and 5 %, or where that is too much, the sidecars that want more get equal
// parts (max-min fairness). Half of what is left is divided equally, so that all can grow; the
// other half fills the reservoir. A single sidecar gets all of the rate and the burst. A sidecar
// without demand for 1 s has nothing. What ended lives of a sidecar may still use counts as its
// share, so one that comes back again and again has one. A sidecar's bucket holds its part of the
// slack and, while no other needs more at once, of half the burst.
//
// A sidecar whose part would be below 16/s (12/s once it has one) gets no rate: its bucket would be
// too small to be filled without loss. The same holds for a sidecar whose batches are larger than
// half its bucket. Their part of R fills the reservoir. They ask for each publish and get its
// tokens, if these are there, in the order in which they ask. That is one token bucket for all of
// them, at the price of a round trip. So a rate of 3/s works for 8 sidecars, and a batch of B for
// each of them. As in any token bucket, large batches starve beside single events that take every
// token at once. Sidecars that have to ask use 85 % to 90 % of a burst of less than 0.1 s of the
// rate: it is full again before they ask.
//
// # Several control planes
//
// Each hands out a part of R, B and slack, and the parts add up to 1 at most (see peers). They
// follow demand by the documents of [Server.Export] and [Server.Merge]: a smaller part is in force
// at once; a larger one is claimed first, and is in force when every other control plane has shown
// that it knows. With documents every 100 ms a move of load from one control plane to another takes
// about 3 s. A control plane that cannot exchange documents for 2 s hands out nothing any more, so
// its sidecars use their fallback.
//
// # On the wire
//
// It is Envoy's rate limit quota service, domain "sluice"; the metadata sluice-node-id and
// sluice-instance-secret name the sidecar. A usage's bucket_id has:
//
//	topic     always
//	tenant    of the topic, where each has its own rate; it is divided like a topic
//	share     the share that acts, so that this one is acknowledged; absent: none
//	report    the report's number, rising over the life of the instance
//	wants     the largest publish that lacked tokens since the last report
//	ask       tokens that waiting publishes want
//	back      tokens that the change to this share removed
//	left      tokens in the bucket, where it does not fill
//	rate, capacity   of the fallback, where that acts
//
// and an assignment's: topic, tenant, share (a new number for each change; a renewal keeps the
// number), report (the report that it answers, from which the lifetime counts) and grant (tokens to
// add when this share begins). Its token_bucket has the burst as max_tokens and the rate as
// tokens_per_fill ÷ fill_interval; tokens_per_fill 0 is a bucket that does not fill, and
// fill_interval then the time in which a token can be expected. An abandon_action means that there
// is no share: the fallback acts.
//
// Sidecars report the usage of all topics: of fleet-wide ones every 200 ms, and sooner if tokens
// lack (at most every 50 ms, less often where that gained nothing); of others every second, if it
// is not zero.
package quota
