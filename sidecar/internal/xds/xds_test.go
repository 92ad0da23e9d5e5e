package xds_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/xds"
	"github.com/sluice-bus/sluice/sidecar/internal/xds/xdstest"
)

func TestUpdatesAndRemovals(t *testing.T) {
	s := newServer(t)
	s.put(globs, map[string]string{"*": "1", "a*": "2"})
	s.put(topics, map[string]string{"a": "3", "b": "4", "c": "6"})
	s.Start()
	h := newHolder(t, s, nil, "a", "b")
	h.run(t)
	xdstest.Soon(t, "what was there from the start", func() bool { return h.text("*") == "1" && h.text("a*") == "2" && h.text("a") == "3" })
	if !h.Connected() || h.text("c") != "" {
		t.Errorf("connected %v, and c, which nobody asked for, is %q", h.Connected(), h.text("c"))
	}
	s.put(topics, map[string]string{"a": "5"})
	s.put(globs, map[string]string{"a*": ""})
	xdstest.Soon(t, "what changed", func() bool { return h.text("a") == "5" && h.text("b") == "4" && h.text("a*") == "" })
	s.put(topics, map[string]string{"b": ""})
	xdstest.Soon(t, "a removal of a name", func() bool { return h.text("b") == "" })
}

func TestAnEmptyServerIsHeardToo(t *testing.T) {
	s := newServer(t)
	s.Start()
	h := newHolder(t, s, nil)
	h.run(t)
	xdstest.Soon(t, "an update", func() bool { return h.count() == 1 })
	if u := h.updates[0]; u.Type != globs || !u.Whole || len(u.Resources) != 0 {
		t.Errorf("got %+v", u)
	}
}

func TestReconnectsAndAsksForDifferencesOnly(t *testing.T) {
	s := newServer(t)
	s.put(globs, map[string]string{"*": "1", "a*": "1", "b*": "1"})
	s.put(topics, map[string]string{"a": "1", "b": "1", "c": "1"})
	h := newHolder(t, s, nil, "a", "b", "c", "absent")
	stop := h.run(t)
	xdstest.Soon(t, "a failure to connect", func() bool { return h.State().Err != nil })
	for round := range 3 {
		s.Start()
		xdstest.Soon(t, "everything", func() bool {
			return h.Connected() && h.text("c") != "" && h.text("b*") == fmt.Sprint(1+round) && (round == 0 || h.text("a") == fmt.Sprint(1+round))
		})
		if round > 0 {
			if got := slices.Sorted(slices.Values(s.Sent())); !slices.Equal(got, []string{"a", "b*"}) {
				t.Errorf("round %d: the server sent %v, want a and b*", round, got)
			}
		}
		s.Stop()
		xdstest.Soon(t, "the loss noticed", func() bool { return !h.Connected() })
		s.Forget()
		s.put(topics, map[string]string{"a": fmt.Sprint(2 + round)})
		s.put(globs, map[string]string{"b*": fmt.Sprint(2 + round), "a*": ""})
	}
	stop()
	if n := strings.Count(h.logged.String(), "no connection"); n != 4 {
		t.Errorf("%d losses logged, want 4: the failure to begin with, and one per round\n%s", n, h.logged)
	}
	if n := strings.Count(h.logged.String(), "connected to"); n != 3 {
		t.Errorf("%d connections logged, want 3\n%s", n, h.logged)
	}
}

func TestGoesOnFromAnEarlierLife(t *testing.T) {
	s := newServer(t)
	s.put(globs, map[string]string{"*": "1"})
	s.put(topics, map[string]string{"a": "1", "b": "1"})
	s.Start()
	first := newHolder(t, s, nil, "a", "b")
	stop := first.run(t)
	xdstest.Soon(t, "everything", func() bool { return first.text("*") != "" && first.text("a") != "" && first.text("b") != "" })
	stop()
	versions := map[string]map[string]string{topics: {}, globs: {}}
	for _, u := range first.updates {
		for _, r := range u.Resources {
			versions[u.Type][r.Name] = r.Version
		}
	}
	s.Stop()
	s.Forget()
	s.put(topics, map[string]string{"b": "2"})
	s.Start()
	second := newHolder(t, s, func(cfg *xds.Config) {
		for i := range cfg.Types {
			cfg.Types[i].Versions = versions[cfg.Types[i].URL]
		}
	}, "a", "b")
	second.run(t)
	xdstest.Soon(t, "the difference", func() bool { return second.text("b") == "2" && second.count() == 2 })
	if got := s.Sent(); !slices.Equal(got, []string{"b"}) {
		t.Errorf("the server sent %v, want b alone", got)
	}
}

func TestRefusedWholeAndMadeUpForLater(t *testing.T) {
	for _, typeURL := range []string{topics, globs} {
		t.Run(typeURL, func(t *testing.T) {
			s := newServer(t)
			s.put(typeURL, map[string]string{"a*": "1", "b*": "1", "c*": "1", "d*": "1"})
			s.Start()
			var names []string
			if typeURL == topics {
				names = []string{"a*", "b*", "c*", "d*"}
			}
			h := newHolder(t, s, nil, names...)
			h.run(t)
			xdstest.Soon(t, "everything", func() bool { return h.text("d*") == "1" && h.text("a*") == "1" })
			s.put(typeURL, map[string]string{"a*": "2", "b*": "bad", "d*": ""})
			xdstest.Soon(t, "a refusal", func() bool { return len(s.Requests(xdstest.Refused)) == 1 })
			if h.text("a*") != "1" || h.text("b*") != "1" || h.text("d*") != "1" {
				t.Errorf("part of what was refused took effect: %v", h.texts)
			}
			if r := s.Requests(xdstest.Refused)[0]; r.GetErrorDetail().GetMessage() != "b* is bad" || r.GetResponseNonce() == "" ||
				r.GetTypeUrl() != typeURL {
				t.Errorf("the server was told %v", r)
			}
			s.put(typeURL, map[string]string{"c*": "2"})
			xdstest.Soon(t, "what was good about it", func() bool { return h.text("c*") == "2" && h.text("a*") == "2" })
			if typeURL == globs {
				xdstest.Soon(t, "the removal in it", func() bool { return h.text("d*") == "" })
			}
			xdstest.Soon(t, "another refusal", func() bool { return len(s.Requests(xdstest.Refused)) == 2 })
			s.put(typeURL, map[string]string{"b*": "3"})
			xdstest.Soon(t, "a good one after the bad one", func() bool { return h.text("b*") == "3" })
			if n := len(s.Requests(xdstest.Refused)); n != 2 {
				t.Errorf("%d refusals, want 2", n)
			}
		})
	}
}

func TestWhatWasRefusedIsAskedForOnANewStream(t *testing.T) {
	s := newServer(t)
	s.put(globs, map[string]string{"a*": "1", "b*": "1"})
	s.Start()
	h := newHolder(t, s, nil)
	h.run(t)
	xdstest.Soon(t, "everything", func() bool { return h.text("a*") == "1" })
	s.put(globs, map[string]string{"a*": "2", "b*": "bad"})
	xdstest.Soon(t, "a refusal", func() bool { return len(s.Requests(xdstest.Refused)) == 1 })
	s.Stop()
	s.put(globs, map[string]string{"b*": "2"})
	s.Start()
	xdstest.Soon(t, "both", func() bool { return h.text("a*") == "2" && h.text("b*") == "2" })
}

func TestBounds(t *testing.T) {
	s := newServer(t)
	s.put(globs, map[string]string{"a*": "1", "b*": "1", "c*": "1", "d*": "1"})
	s.Start()
	h := newHolder(t, s, func(cfg *xds.Config) { cfg.MaxNames = 3 })
	_, err := xds.New(xds.Config{Types: []xds.Type{{URL: globs, Versions: map[string]string{"a*": "1", "b*": "1"}}}, MaxNames: 1})
	if err == nil || !strings.Contains(err.Error(), "2 resources at the start; at most 1 are allowed") {
		t.Errorf("more resources than there is room for, from the start: %v", err)
	}
	h.run(t)
	xdstest.Soon(t, "a refusal of more than there is room for", func() bool { return len(s.Requests(xdstest.Refused)) == 1 })
	if h.count() != 0 {
		t.Errorf("it took effect: %v", h.texts)
	}
}

func TestATooLargeResponseEndsTheStream(t *testing.T) {
	s := newServer(t)
	s.put(globs, map[string]string{"*": strings.Repeat("x", 10_000)})
	s.Start()
	h := newHolder(t, s, func(cfg *xds.Config) { cfg.MaxMessageBytes = 5000 })
	h.run(t)
	xdstest.Soon(t, "an error", func() bool {
		err := h.State().Err
		return err != nil && strings.Contains(err.Error(), "larger than max")
	})
	s.put(globs, map[string]string{"*": "1"})
	xdstest.Soon(t, "what is not too large", func() bool { return h.text("*") == "1" })
}

func TestStopsWhileConnecting(t *testing.T) {
	s := newServer(t)
	h := newHolder(t, s, nil)
	stop := h.run(t)
	_, changed := h.Watch()
	<-changed
	began := time.Now()
	stop()
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %v to stop", took)
	}
	if h.State().Connected {
		t.Error("connected")
	}
}

func TestRefusedResourceWithTheNameOfTheWildcard(t *testing.T) {
	s := newServer(t)
	s.put(globs, map[string]string{"*": "1", "b*": "bad", "c*": "1"})
	s.Start()
	h := newHolder(t, s, nil)
	stop := h.run(t)
	xdstest.Soon(t, "a refusal", func() bool { return len(s.Requests(xdstest.Refused)) == 1 })
	s.put(globs, map[string]string{"b*": "2"})
	xdstest.Soon(t, "everything", func() bool { return h.text("*") == "1" && h.text("b*") == "2" && h.text("c*") == "1" })
	s.put(globs, map[string]string{"*": "3"})
	xdstest.Soon(t, "a change after it", func() bool { return h.text("*") == "3" })
	stop()
	for i, u := range h.updates {
		if len(u.Removed) > 0 || u.Whole == (i == 0) {
			t.Errorf("update %d: %+v", i, u)
		}
	}
	if strings.Contains(h.logged.String(), "no connection") {
		t.Errorf("logged %s", h.logged)
	}
}
