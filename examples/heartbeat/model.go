package main

const rounds = 60 // heartbeats of each process

// processes are the processes that send heartbeats, and how busy they are in a round.
var processes = map[string]func(round int) (cpu int){
	"api-1":    func(round int) int { return 40 + round%7 },
	"api-2":    func(round int) int { return 40 + round },                       // more and more
	"batch-1":  func(round int) int { return []int{30, 95}[round/8%2] },         // comes and goes
	"mailer-1": func(round int) int { return []int{20, 0}[round/(rounds*2/3)] }, // stops
}

// heartbeat is the payload of heartbeat.received. The event's key is the process.
type heartbeat struct {
	Round int `json:"round"`
	CPU   int `json:"cpu"` // percent
}

// state is the payload of process.state. The event's key is the process.
type state struct {
	State   string `json:"state"`
	Since   int    `json:"since_round"`
	Changes int    `json:"changes"` // one too many, or too few, would stay
}

// next is the rule of the projection: the state after a heartbeat, and whether the state has
// changed.
func (s state) next(h heartbeat) (state, bool) {
	now := "running"
	switch {
	case h.CPU == 0:
		now = "stopped"
	case h.CPU >= 90:
		now = "overloaded"
	}
	if now == s.State {
		return s, false
	}
	return state{State: now, Since: h.Round, Changes: s.Changes + 1}, true
}

// expected is what the states are after all rounds.
func expected() map[string]state {
	want := map[string]state{}
	for process, cpu := range processes {
		for round := 1; round <= rounds; round++ {
			want[process], _ = want[process].next(heartbeat{Round: round, CPU: cpu(round)})
		}
	}
	return want
}
