package scenarios

var soak = Scenario{
	Name: "soak", Asks: "Does anything grow, or slow down, in hours of a steady load (--for 1h)?",
	Cases: []Case{{"500 events/s", Params{Rate: 500, Keys: 1000}}},
	Uses:  rateUses,
	Run:   runRoundtrip,
}
