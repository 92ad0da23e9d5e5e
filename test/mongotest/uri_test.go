package mongotest

import "testing"

func TestURIs(t *testing.T) {
	for _, test := range []struct{ uri, database, via string }{
		{"mongodb://127.0.0.1:27017/", "mongodb://127.0.0.1:27017/db", "mongodb://proxy:1/db?directConnection=true"},
		{"mongodb://h", "mongodb://h/db", "mongodb://proxy:1/db?directConnection=true"},
		{
			"mongodb://u:p%40@h1:1,h2:2/?replicaSet=rs&w=1",
			"mongodb://u:p%40@h1:1,h2:2/db?replicaSet=rs&w=1&authSource=admin",
			"mongodb://u:p%40@proxy:1/db?w=1&directConnection=true&authSource=admin",
		},
		{
			"mongodb+srv://u:p@cluster.example/users",
			"mongodb+srv://u:p@cluster.example/db?authSource=users",
			"", // refused by Addr
		},
		{
			"mongodb://u:p@h?authsource=x",
			"mongodb://u:p@h/db?authsource=x",
			"mongodb://u:p@proxy:1/db?authsource=x&directConnection=true",
		},
	} {
		if got := withDatabase(test.uri, "db"); got != test.database {
			t.Errorf("%s with a database: %s, want %s", test.uri, got, test.database)
		}
		if got := withDatabase(withHost(test.uri, "proxy:1"), "db"); test.via != "" && got != test.via {
			t.Errorf("%s through a proxy: %s, want %s", test.uri, got, test.via)
		}
	}
}
