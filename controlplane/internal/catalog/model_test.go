package catalog

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/controlplane/internal/store"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
)

// model is the policies that commits lead to, worked out the plain way.
type model struct {
	now      map[string]store.Change
	versions map[string][]store.Change
}

func replay(commits []store.Commit) model {
	m := model{now: map[string]store.Change{}, versions: map[string][]store.Change{}}
	for _, c := range commits {
		for _, ch := range c.Changes {
			m.versions[ch.Name] = append(m.versions[ch.Name], ch)
			if m.now[ch.Name] = ch; ch.Policy == nil {
				delete(m.now, ch.Name)
			}
		}
	}
	return m
}

// version is that of the policy there is; 0: none.
func (m model) version(name string) int64 { return m.now[name].Version }

// with returns whether the policies go together after a change.
func (m model) with(t *rapid.T, put map[string]string, remove []string) bool {
	texts := map[string]string{}
	for name, ch := range m.now {
		texts[name] = string(ch.Policy)
	}
	maps.Copy(texts, put)
	for _, name := range remove {
		delete(texts, name)
	}
	var all []policy.Policy
	for _, text := range texts {
		all = append(all, pol(t, text))
	}
	_, err := policy.NewSnapshot(all, source)
	return err == nil
}

// want is what one call asked for.
type want struct {
	by      string
	permits Permits
	on      string // whose version permits looks at
	put     map[string]string
	remove  func(model) []string
	action  store.Action
	unknown bool // whether what is asked for is not there
}

// machine is two catalogs on one store, and the plain truth about it.
type machine struct {
	store    *fakeStore
	catalogs [2]*Catalog
	calls    int
	intruded int
}

var modelNames = []string{"*", "a*", "ab*", "a", "ab", "abc", "b"}

var modelSettings = []string{`"partitions":3`, `"partitions":4`, `"paused":true`, `"publish":{"rate":0,"burst":0}`, `"publish":{"rate":5}`,
	`"delivery":{"backoff":{"min":"1m"}}`, `"delivery":{"backoff":{"max":"2m"}}`}

func drawText(t *rapid.T, name string) string {
	p := pol(t, fmt.Sprintf(`{"name":%q,%s}`, name, rapid.SampledFrom(modelSettings).Draw(t, "settings")))
	return string(p.AppendJSON(nil))
}

// TestCatalogFollowsTheModel makes changes through two catalogs on a store that loses answers,
// commits and races, and checks every one of them against the commits that are there afterwards.
func TestCatalogFollowsTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{store: newFake()}
		m.store.intrude = func(revision int64) store.Commit {
			m.intruded++
			text := fmt.Sprintf(`{"name":"z","partitions":%d}`, m.intruded)
			version := int64(len(replay(m.store.commits).versions["z"])) + 1
			return store.Commit{Revision: revision, At: noon, By: "intruder", Token: fmt.Sprint("intruder ", m.intruded),
				Changes: []store.Change{{Name: "z", Version: version, Action: store.Updated, Policy: []byte(text)}}}
		}
		for i := range m.catalogs {
			m.catalogs[i] = catalogOn(t, m.store)
		}
		t.Repeat(map[string]func(*rapid.T){
			"put": m.put, "delete": m.delete, "rollback": m.rollback, "apply": m.apply,
			"follow": func(t *rapid.T) {
				require.NoError(t, m.any(t).follow(t.Context()))
			},
			"": m.check,
		})
	})
}

func (m *machine) any(t *rapid.T) *Catalog {
	return m.catalogs[rapid.IntRange(0, 1).Draw(t, "catalog")]
}

// begin draws the faults of the next call and who makes it.
func (m *machine) begin(t *rapid.T) (c *Catalog, by string) {
	m.store.faults = rapid.SliceOfN(rapid.SampledFrom([]fault{none, none, beaten, unheard, dropped, late}), 0, 4).Draw(t, "faults")
	m.calls++
	return m.any(t), fmt.Sprint("call ", m.calls)
}

func drawPermits(t *rapid.T) Permits {
	switch expected := rapid.Int64Range(-1, 4).Draw(t, "expected"); expected {
	case -1:
		return nil
	default:
		return func(current int64) error {
			if current != expected {
				return wire.Errorf(wire.PreconditionFailed, "the version is %d", current)
			}
			return nil
		}
	}
}

func (m *machine) put(t *rapid.T) {
	c, by := m.begin(t)
	name := rapid.SampledFrom(modelNames).Draw(t, "name")
	text, permits := drawText(t, name), drawPermits(t)
	done, err := c.Put(t.Context(), Author{Name: by}, pol(t, text), permits, false)
	m.judge(t, err, want{by: by, permits: permits, on: name, put: map[string]string{name: text}})
	if err == nil {
		e, created := done.Changes[0].To, done.Changes[0].From == nil
		if got := string(e.Policy.AppendJSON(nil)); got != text {
			t.Fatalf("put %s, got %s", text, got)
		}
		if last := replay(m.store.all()).now[name]; e.Version != last.Version || created && last.Action != store.Created {
			t.Fatalf("got version %d, created %v; the store has %+v", e.Version, created, last)
		}
	}
}

func (m *machine) delete(t *rapid.T) {
	c, by := m.begin(t)
	name, permits := rapid.SampledFrom(modelNames).Draw(t, "name"), drawPermits(t)
	_, err := c.Delete(t.Context(), Author{Name: by}, name, permits, false)
	m.judge(t, err, want{by: by, permits: permits, on: name, remove: func(model) []string { return []string{name} },
		unknown: replay(m.store.all()).version(name) == 0})
}

func (m *machine) rollback(t *rapid.T) {
	c, by := m.begin(t)
	name, permits := rapid.SampledFrom(modelNames).Draw(t, "name"), drawPermits(t)
	version := rapid.Int64Range(0, 5).Draw(t, "version")
	w := want{by: by, permits: permits, on: name, action: store.RolledBack, unknown: true}
	if versions := replay(m.store.all()).versions[name]; version >= 1 && version <= int64(len(versions)) && versions[version-1].Policy != nil {
		w.unknown, w.put = false, map[string]string{name: string(versions[version-1].Policy)}
	}
	_, err := c.Rollback(t.Context(), Author{Name: by}, name, version, permits)
	m.judge(t, err, w)
}

func (m *machine) apply(t *rapid.T) {
	c, by := m.begin(t)
	names := rapid.SliceOfNDistinct(rapid.SampledFrom(modelNames), 0, 4, rapid.ID).Draw(t, "names")
	prune, dry := rapid.Bool().Draw(t, "prune"), rapid.Bool().Draw(t, "dry")
	w := want{by: by, put: map[string]string{}}
	var policies []policy.Policy
	for _, name := range names {
		w.put[name] = drawText(t, name)
		policies = append(policies, pol(t, w.put[name]))
	}
	if prune {
		w.remove = func(m model) []string {
			return slices.DeleteFunc(slices.Collect(maps.Keys(m.now)), func(name string) bool { return slices.Contains(names, name) })
		}
	}
	done, err := c.Apply(t.Context(), Author{Name: by}, policies, prune, dry)
	if dry {
		m.rehearsed(t, done, err, w)
		return
	}
	m.judge(t, err, w)
}

// rehearsed checks a dry run, which is of the latest policies and stores nothing.
func (m *machine) rehearsed(t *rapid.T, done Applied, err error, w want) {
	commits := m.store.all()
	now := replay(commits)
	var remove []string
	if w.remove != nil {
		remove = w.remove(now)
	}
	valid := now.with(t, w.put, remove)
	if m.commitsBy(w.by) != nil || valid != (err == nil) {
		t.Fatalf("a dry run has made %v, error %v", m.commitsBy(w.by), err)
	}
	if err != nil {
		return
	}
	var want []string
	for name, text := range w.put {
		switch old, there := now.now[name]; {
		case !there:
			want = append(want, name+" create")
		case string(old.Policy) == text:
			want = append(want, name+" unchanged")
		default:
			want = append(want, name+" update")
		}
	}
	for _, name := range remove {
		want = append(want, name+" delete")
	}
	var got []string
	for _, ch := range done.Changes {
		got = append(got, ch.Name+" "+ch.Action)
		if (ch.From == nil) != (ch.Action == "create") || (ch.To == nil) != (ch.Action == "delete") {
			t.Fatalf("%+v", ch)
		}
	}
	slices.Sort(want)
	if done.Revision != int64(len(commits)) || !slices.Equal(got, want) {
		t.Fatalf("revision %d, changes %q, want %q", done.Revision, got, want)
	}
}

func (m *machine) commitsBy(by string) (found []store.Commit) {
	for _, c := range m.store.all() {
		if c.By == by {
			found = append(found, c)
		}
	}
	return found
}

// judge checks one call by what is in the store after it.
func (m *machine) judge(t *rapid.T, err error, w want) {
	m.store.faults = nil
	commits := m.store.all()
	made := m.commitsBy(w.by)
	if len(made) > 1 {
		t.Fatalf("%s made %d commits", w.by, len(made))
	}
	if len(made) == 1 {
		m.judgeCommit(t, made[0], w)
		if err != nil && wire.AsError(err).Code != wire.StoreUnavailable {
			t.Fatalf("it was committed, and said %v", err)
		}
		return
	}
	// Nothing was committed; the policies are those that it was decided on.
	now := replay(commits)
	var remove []string
	if w.remove != nil {
		remove = w.remove(now)
	}
	var allowed error
	if w.permits != nil {
		allowed = w.permits(now.version(w.on))
	}
	same := len(remove) == 0 && w.action != store.RolledBack
	for name, text := range w.put {
		same = same && string(now.now[name].Policy) == text
	}
	var code wire.Code
	if err != nil {
		code = wire.AsError(err).Code
	}
	switch {
	case code == wire.StoreUnavailable: // it went wrong on its way
	case w.unknown:
		if code != wire.NotFound {
			t.Fatalf("what is not there: %v", err)
		}
	case allowed != nil:
		if !errors.Is(err, allowed) {
			t.Fatalf("not permitted (%v): %v", allowed, err)
		}
	case same:
		if err != nil {
			t.Fatalf("nothing to change: %v", err)
		}
	case code != wire.InvalidPolicy || len(wire.AsError(err).Fields) == 0 || now.with(t, w.put, remove):
		t.Fatalf("nothing was committed, and it said %v", err)
	}
}

// judgeCommit checks that a commit is what was asked of the policies before it.
func (m *machine) judgeCommit(t *rapid.T, c store.Commit, w want) {
	before := replay(m.store.all()[:c.Revision-1])
	if w.permits != nil && w.permits(before.version(w.on)) != nil {
		t.Fatalf("commit %d was not permitted", c.Revision)
	}
	var remove []string
	if w.remove != nil {
		remove = w.remove(before)
	}
	if !before.with(t, w.put, remove) {
		t.Fatalf("commit %d leads to policies that do not go together", c.Revision)
	}
	count := len(remove)
	for name, text := range w.put {
		if string(before.now[name].Policy) != text || w.action == store.RolledBack { // which is always a version
			count++
		}
	}
	if len(c.Changes) != count || count == 0 || !c.At.Equal(noon.Truncate(time.Millisecond)) {
		t.Fatalf("commit %+v, want %d changes", c, count)
	}
	for _, ch := range c.Changes {
		action := store.Updated
		switch {
		case slices.Contains(remove, ch.Name):
			action = store.Deleted
		case w.action != "":
			action = w.action
		case before.version(ch.Name) == 0:
			action = store.Created
		}
		if ch.Action != action || ch.Version != int64(len(before.versions[ch.Name]))+1 || string(ch.Policy) != w.put[ch.Name] {
			t.Fatalf("change %+v, want %s of %s", ch, action, w.put[ch.Name])
		}
	}
}

// check compares what the catalogs say, once they have followed, with the model.
func (m *machine) check(t *rapid.T) {
	commits := m.store.all()
	want := replay(commits)
	names := slices.Sorted(maps.Keys(want.now))
	for i, c := range m.catalogs {
		if rapid.IntRange(0, 3).Draw(t, "look") > 0 {
			continue
		}
		require.NoError(t, c.follow(t.Context()))
		s := c.State()
		if s.Revision != int64(len(commits)) || len(s.Entries) != len(names) || len(s.Resolved) != len(names) {
			t.Fatalf("catalog %d is at %d with %d policies", i, s.Revision, len(s.Entries))
		}
		var all []policy.Policy
		for j, name := range names {
			e, ch := s.Entries[j], want.now[name]
			if e.Policy.Name != name || e.Version != ch.Version || string(e.Policy.AppendJSON(nil)) != string(ch.Policy) {
				t.Fatalf("catalog %d has %+v, want %+v", i, e, ch)
			}
			all = append(all, e.Policy)
		}
		whole, err := policy.NewSnapshot(all, source)
		require.NoError(t, err)
		for j, name := range names {
			r := s.Resolved[j]
			if r.Name != name || r.Version != want.now[name].Version || *r.Effective != *whole.Effective(name) ||
				r.Effective != s.Snapshot.Effective(name) {
				t.Fatalf("catalog %d resolves %s as %+v", i, name, r)
			}
		}
		m.checkHistory(t, c, commits, want)
	}
}

func (m *machine) checkHistory(t *rapid.T, c *Catalog, commits []store.Commit, want model) {
	for name, changes := range want.versions {
		versions, err := c.History(t.Context(), name)
		if err != nil || len(versions) != len(changes) {
			t.Fatalf("%d versions of %s, want %d, %v", len(versions), name, len(changes), err)
		}
		for i, v := range versions {
			if ch := changes[len(changes)-1-i]; v.Version != ch.Version || v.Action != ch.Action || v.To != ch.To ||
				text(v.Entry) != string(ch.Policy) {
				t.Fatalf("%s: got %+v, want %+v", name, v, ch)
			}
		}
	}
	limit := rapid.IntRange(1, 5).Draw(t, "limit")
	var got []string
	for before := int64(1 << 50); before != 0; {
		records, next, err := c.Audit(t.Context(), before, limit)
		require.NoError(t, err)
		for _, r := range records {
			got = append(got, fmt.Sprint(r.Revision, r.By, r.Action, r.Name, r.Version, text(r.From), text(r.To)))
		}
		before = next
	}
	var all []string
	last := map[string]string{}
	for _, c := range commits {
		var lines []string
		for _, ch := range c.Changes {
			lines = append(lines, fmt.Sprint(c.Revision, c.By, ch.Action, ch.Name, ch.Version, last[ch.Name], string(ch.Policy)))
			last[ch.Name] = string(ch.Policy)
		}
		all = append(lines, all...)
	}
	if !slices.Equal(got, all) {
		t.Fatalf("the audit log is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(all, "\n"))
	}
}

func text(e *Entry) string {
	if e == nil {
		return ""
	}
	return string(e.Policy.AppendJSON(nil))
}
