package scenarios

var topics = Scenario{
	Name: "topics", Asks: "Does an event cost more where there are many topics?",
	Cases: []Case{
		{"1 topic", Params{Connections: 64, Topics: 1}},
		{"100 topics", Params{Connections: 64, Topics: 100}},
		{"10,000 topics", Params{Connections: 64, Topics: 10_000}},
	},
	Uses: publishUses,
	Run:  runPublish,
}
