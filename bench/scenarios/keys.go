package scenarios

var keys = Scenario{
	Name: "keys", Asks: "Does an event come later where its key has to be kept in order?",
	Cases: []Case{
		{"no keys", Params{Rate: 1000}},
		{"1 key", Params{Rate: 1000, Keys: 1}},
		{"1,000 keys", Params{Rate: 1000, Keys: 1000}},
		{"100,000 keys", Params{Rate: 1000, Keys: 100_000}},
	},
	Uses: rateUses,
	Run:  runRoundtrip,
}
