package health

import "time"

// kind is one kind of incident: what begins it, how long that has to last, and what mends it. The
// functions that find it are in find.go.
type kind struct {
	name     string
	severity Severity
	// after is how long a finding has to last until it is an incident, and quiet how long it has to be
	// gone until the incident is over.
	after, quiet time.Duration
	find         func(*facts) []finding
	begins, ends string // for people
	remedy       string
}

// quiet is longer than two reports take, so that one that is late ends no incident.
const quiet = 12 * time.Second

// kinds are all there are, the worst first.
var kinds = []kind{
	{
		name: "store_away", severity: Critical, quiet: quiet, find: storeAway,
		begins: "a sidecar cannot reach its store, or cannot store in it", ends: "all of its sidecars reach it",
		remedy: "Look at the database: is it up, has it a primary, can the sidecars reach it, has its disk room? " +
			"Publishes are spooled meanwhile, where their topics' policies allow it.",
	},
	{
		name: "spooling", severity: Warning, quiet: quiet, find: spooling,
		begins: "events wait in a sidecar's spool", ends: "the spools are empty",
		remedy: "These events are on the sidecars' disks and nowhere else: do not remove their data folders. They go into the store in order " +
			"once it is back.",
	},
	{
		name: "sidecar_missing", severity: Warning, after: 5 * time.Second, quiet: quiet, find: sidecarMissing,
		begins: "a sidecar that may have events of its own is gone for 5 s", ends: "it is back, or forgotten",
		remedy: "Start it again with its data folder. If that is lost for good, forget the sidecar: replays of the fleet then leave out " +
			"the events that only it had.",
	},
	{
		name: "policy_rejected", severity: Warning, quiet: quiet, find: policyRejected,
		begins: "a sidecar refuses a policy", ends: "it accepts one",
		remedy: "The sidecar goes on with the last policy that it took. Correct the policy, or roll it back.",
	},
	{
		name: "group_stuck", severity: Warning, quiet: quiet, find: groupStuck,
		begins: "a group's oldest event is the same for longer than 30 s and the topic's delivery.ack_timeout, and the group is not paused",
		ends:   "that event is acked or given up",
		remedy: "Look at the group's members: without any, start a consumer; else find the one that has the event and what it waits for.",
	},
	{
		name: "lag_growing", severity: Warning, quiet: 15 * time.Second, find: lagGrowing,
		begins: "a group's lag has grown for 30 s, by 100 events and a tenth at least", ends: "it has not grown for 30 s",
		remedy: "Start more consumers, up to the number of partitions, or raise max_inflight; or lower the rate of those who publish.",
	},
	{
		name: "dead_letters", severity: Warning, quiet: quiet, find: deadLetters,
		begins: "a group has dead letters", ends: "it has none",
		remedy: "Read their reasons, mend the consumer, and redrive them; discard those that nobody needs.",
	},
	{
		name: "refused", severity: Warning, quiet: 15 * time.Second, find: refused,
		begins: "more than one event a second and a tenth of a topic's are over its limit", ends: "less than half of that",
		remedy: "Raise publish.rate of the topic's policy, or have its publishers slow down; publish.per keeps one of them " +
			"from using up the rate of all.",
	},
	{
		name: "capture_stopped", severity: Critical, quiet: quiet, find: captureStopped,
		begins: "a capture has lost its place, or its collection is gone", ends: "it captures again",
		remedy: "Its changes are not published any more: have the collection read anew, from now or from its beginning.",
	},
	{
		name: "outbox_failing", severity: Warning, quiet: quiet, find: outboxFailing,
		begins: "an outbox cannot be drained, or one of its documents was given up within a minute", ends: "it is drained, and none is",
		remedy: "The documents that were given up have status error and say why. Correct them, and set their status to pending.",
	},
	{
		name: "disk_low", severity: Warning, quiet: quiet, find: diskLow,
		begins: "less than twice --disk-low-water is free; below that it is critical", ends: "more than 2.2 times that is free",
		remedy: "Free some room on the sidecar's disk, or enlarge it; shorter retention frees some, too. " +
			"Below --disk-low-water publishes are refused.",
	},
	{
		name: "memory_full", severity: Warning, quiet: quiet, find: memoryFull,
		begins: "a sidecar's clients use more than nine tenths of --max-buffered-bytes", ends: "less than eight tenths",
		remedy: "Find the clients that do not read, or send too much at once; or raise --max-buffered-bytes.",
	},
	{
		name: "clock_skew", severity: Warning, after: 4 * time.Second, quiet: quiet, find: clockSkew,
		begins: "a sidecar's clock differs from the control plane's by more than 2 s in two reports", ends: "by less than 1 s",
		remedy: "Let NTP set the clocks: events carry the sidecars' times, and retention, schedules and replays by time go by them.",
	},
	{
		name: "version_skew", severity: Info, after: 4 * time.Second, quiet: quiet, find: versionSkew,
		begins: "connected sidecars are of several versions", ends: "all are of one version",
		remedy: "Complete the rollout, or take it back.",
	},
}

// kindOf are the kinds by name.
var kindOf = func() map[string]kind {
	all := map[string]kind{}
	for _, k := range kinds {
		all[k.name] = k
	}
	return all
}()
