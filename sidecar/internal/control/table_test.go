package control

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestTableIsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table, model := new(table), map[string]*topic{}
		name := func(t *rapid.T) string { return fmt.Sprint(rapid.IntRange(0, 1500).Draw(t, "name")) }
		t.Repeat(map[string]func(*rapid.T){
			"add many": func(t *rapid.T) {
				from := rapid.IntRange(0, 1500).Draw(t, "from")
				for i := from; i < from+rapid.IntRange(1, 300).Draw(t, "n"); i++ {
					if n := fmt.Sprint(i); model[n] == nil {
						model[n] = newTopic(n, asked)
						table.add(model[n])
					}
				}
			},
			"remove": func(t *rapid.T) {
				if n := name(t); model[n] != nil {
					table.remove(model[n])
					delete(model, n)
				}
			},
			"": func(t *rapid.T) {
				if n := name(t); table.find(n) != model[n] {
					t.Fatalf("found %v for %s, want %v", table.find(n), n, model[n])
				}
				if n := len(slices.Collect(table.all)); n != len(model) || int(table.count.Load()) != n {
					t.Fatalf("%d topics, counted as %d, want %d", n, table.count.Load(), len(model))
				}
			},
		})
	})
}

// A lookup that goes on while the table grows and shrinks finds what stays.
func TestLookupsDuringChanges(t *testing.T) {
	table, stays := new(table), newTopic("stays", known)
	table.add(stays)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 3 {
			var others []*topic
			for i := range 3000 {
				others = append(others, newTopic(fmt.Sprint(i), asked))
				table.add(others[i])
			}
			for _, tp := range others {
				table.remove(tp)
			}
		}
	}()
	for {
		if table.find("stays") != stays {
			t.Fatal("lost")
		}
		select {
		case <-done:
			return
		default:
		}
	}
}
