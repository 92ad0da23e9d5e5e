package mongowatch

import "testing"

func TestStoresInClear(t *testing.T) {
	for url, want := range map[string]bool{
		"mongodb://db1,db2,db3/events?replicaSet=rs0":          true,
		"mongodb://u:p@127.0.0.1,10.0.0.1/events":              true,
		"mongodb://db1/?tls=true":                              false,
		"mongodb://db1/?ssl=true":                              false,
		"mongodb://localhost/events":                           false,
		"mongodb://127.0.0.1:27018,[::1]/events":               false,
		"mongodb://%2Ftmp%2Fmongodb-27017.sock/events":         false,
		"mongodb+srv://cluster.example/events":                 false,
		"mongodb+srv://cluster.example/events?tls=false":       true,
		"mongodb://u:p@db1/events?tls=false&authSource=events": true,
	} {
		if got := InClear(url); got != want {
			t.Errorf("InClear(%q) = %v, want %v", url, got, want)
		}
	}
}
