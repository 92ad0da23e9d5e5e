// Package quota shares out the rates of fleet-wide topics (policy
// publish.scope: fleet) among the sidecars, and passes on what all sidecars
// count. It must not know where policies come from, who shows the counts, nor
// how a sidecar enforces its share.
//
// # The bound
//
// A topic has a rate R and a burst B. What all sidecars with a share accept
// together in any window of t seconds is at most
//
//	B + max(1, R × 0.25 s) + R × t
//
// whatever messages are late or lost and whoever comes and goes. Over 10 s that
// is R × time and 2.5 %, plus the burst (below 4/s: and one publish).
// Beyond it, as the contract has it, each sidecar that goes by its fallback
// accepts at most max(1, B ÷ known) + R ÷ known × t, where known is how many
// sidecars it knows of: a sidecar does that whose share has ended without a new
// one, because it lost the control plane, or because that has just started. So
// while k of them are cut off and the control plane serves the others, up to
// k × R ÷ known a second more are accepted. A change of R or B acts once it has
// reached the sidecars; until then the old bound holds. Tokens that a
// sidecar gives back, because an event was refused later on, are as if they had
// been taken when they are used again, which loosens the bound as it does for
// any bucket (package limit of the sidecar).
//
// # Why it holds
//
// The tokens of a topic are in its reservoir, here, or in the buckets of
// sidecars. Two sums are kept, over all sidecars, of what may be acting there:
// of the rates at which their buckets fill, and of what these may hold. A
// lower share counts as the higher one before it until the sidecar has
// acknowledged it, or the lifetime of the higher one has passed. Always
//
//	sum of rates ≤ R        sum of bursts + reservoir ≤ B + slack
//
// since more is handed out only of what is free: lower first, raise after. The
// reservoir fills with R less the sum of rates, so all tokens together come at
// R at most; a grant moves tokens from the reservoir to a bucket, and what a
// lower burst cuts off moves back. So what is accepted in a window is at most
// what was there at its start and R × t.
//
// A lifetime needs no clocks that agree: a share says which report of the
// sidecar it answers, and the sidecar counts the lifetime from when it made
// that report, which was before it arrived here. The two clocks' rates may
// differ by 1 %.
//
// Whoever starts (a new process, a new part of a topic) does not know what may
// be acting, so for one lifetime it hands out nothing. Sidecars go on by what
// they have, then by their fallback; what their fallback saved up does not
// survive the first share. Rates of fallbacks that are reported count in the
// sum of rates like any other, so nothing is raised into them, and who comes
// back from its fallback gets a share of what the others leave. How much of a
// burst was used before is not known either: the reservoir fills at the rate
// since the start. Of a topic that was not fleet-wide at the start all is known:
// nobody has anything, and the reservoir is full.
//
// # Who gets how much
//
// Demand is what a sidecar let through and refused, per second, as a moving
// average of 0.4 s. Each round (every 100 ms, and at once when somebody waits)
// divides R: everybody gets demand and 5 %, or where that is too much, those who
// want more than the rest get the same (max-min fair). Half of what nobody
// wants is given to all to grow into; the other half fills the reservoir. One
// sidecar alone gets all of the rate and the burst. Who has had no demand for
// 1 s has nothing. A sidecar's bucket holds its part of the slack and, while
// nobody needs more of it at once, of half the burst.
//
// A sidecar whose part would be below 16/s (12/s once it has one) gets no rate:
// its bucket would be too small to be filled without loss. Nor does one whose batches are larger than
// half its bucket. Their part of R fills the reservoir, and they ask for each publish
// and get its tokens, if these are there, in the order in which they ask. That
// is one token bucket for all of them, at the price of a round trip.
// So a rate of 3/s works for 8 sidecars, and a batch of B for each of them. As
// in any token bucket, large batches starve beside single events that take every
// token at once. A burst of less than 0.1 s of the rate is used up to 85 % to
// 90 % only by sidecars that have to ask: it is full again before they come.
//
// # Several control planes
//
// Each hands out a part of R, B and slack, and the parts add up to 1 at most
// (see peers). They follow demand by the documents of [Server.Export] and
// [Server.Merge]: less is taken at once, more is claimed first, and is in force
// when every other control plane has shown that it knows. With documents every
// 100 ms a move of load from one control plane to another takes about 3 s. Who
// cannot exchange documents for 2 s hands out nothing any more, so its sidecars
// go by their fallback.
//
// # On the wire
//
// It is Envoy's rate limit quota service, domain "sluice"; the metadata
// sluice-node-id and sluice-instance say who calls. A usage's bucket_id has:
//
//	topic     always
//	tenant    of the topic, where each has the rate for itself; it is divided as a topic of its own is
//	share     the share that acts, so that this one is acknowledged; absent: none
//	report    the report's number, rising over the life of the instance
//	wants     the largest publish that lacked tokens since the last report
//	ask       tokens that publishes want which wait for the answer
//	back      tokens that the change to this share cut off
//	left      tokens that there are, where the bucket does not fill
//	rate, capacity   of the fallback, where that acts
//
// and an assignment's: topic, tenant, share (a new number for each change; a renewal has
// the number of what it renews), report (that it answers, from which the
// lifetime counts) and grant (tokens to add when this share begins). Its
// token_bucket has the burst as max_tokens and the rate as tokens_per_fill ÷
// fill_interval; tokens_per_fill 0 is a bucket that does not fill, and
// fill_interval then the time in which a token can be expected. An
// abandon_action says that there is no share to be had: the fallback acts.
//
// Usage is reported of all topics: of others than fleet-wide ones every second
// and only what is not zero, of fleet-wide ones every 200 ms, and earlier (at
// most every 50 ms, less often where it brings nothing) for want of tokens.
package quota
