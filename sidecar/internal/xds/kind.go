package xds

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// wildcard is the name that stands for all resources of a type. It is always
// sent: an empty first request may mean the same, or nothing.
const wildcard = "*"

// askSingly is up to how many resources of refused responses are asked for one
// by one, so that a good one comes without the bad one that spoilt it.
const askSingly = 64

type names map[string]struct{}

func (n names) has(name string) bool { _, ok := n[name]; return ok }

// kind is what is wanted and what is there of one type. Names to send are kept as sets, so that
// their number is bounded.
type kind struct {
	url      string
	wildcard bool
	together bool
	wanted   names             // by name; not with wildcard
	versions map[string]string // of what is there

	// Of the stream that is open.
	opened   bool  // it had a request of this type
	answered bool  // a response of this type was taken
	sub      names // what it has yet to be told
	missed   names // in responses that were refused, and not taken since
	again    names // those of missed that are to be asked for again
	asked    names // those that were, and have not come yet
}

func newKind(t Type) *kind {
	k := &kind{url: t.URL, wildcard: t.Wildcard, together: t.Together, wanted: names{}, versions: map[string]string{}}
	maps.Copy(k.versions, t.Versions)
	if !t.Wildcard {
		for name := range t.Versions {
			k.wanted[name] = struct{}{}
		}
	}
	k.restart()
	return k
}

// restart forgets what the last stream was told.
func (k *kind) restart() {
	k.opened, k.answered = false, false
	k.sub, k.missed, k.again, k.asked = names{}, names{}, names{}, names{}
}

// unwanted counts the names that are not asked for yet.
func (k *kind) unwanted(list []string) (n int) {
	for _, name := range list {
		if !k.wanted.has(name) {
			n++
		}
	}
	return n
}

// subscribe reports whether there is something to send now.
func (k *kind) subscribe(list []string) (news bool) {
	for _, name := range list {
		if !k.wanted.has(name) {
			k.wanted[name] = struct{}{}
			k.sub[name] = struct{}{}
			news = true
		}
	}
	return news
}

// requests are those that tell the stream what it has yet to be told.
func (k *kind) requests(limit bounds) (out []*discoveryv3.DeltaDiscoveryRequest) {
	if !k.opened {
		return k.first(limit)
	}
	tell := func(subscribe, unsubscribe []string) {
		out = append(out, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: k.url,
			ResourceNamesSubscribe: subscribe, ResourceNamesUnsubscribe: unsubscribe})
	}
	if k.wildcard {
		// To name one and take it back at once is how a single resource of a
		// wildcard is asked for: the server answers with it, or its removal.
		for group := range k.apart(limit) {
			tell(group, group)
		}
	} else {
		for chunk := range chunks(k.again, limit) {
			tell(nil, chunk) // for the server to forget that it sent them
		}
		for chunk := range chunks(k.sub, limit) {
			tell(chunk, nil)
		}
		for group := range k.apart(limit) {
			tell(group, nil)
		}
	}
	maps.Copy(k.asked, k.again)
	k.sub, k.again = names{}, names{}
	return out
}

// apart yields what is to be asked for again one by one, or together where it
// is too much.
func (k *kind) apart(limit bounds) iter.Seq[[]string] {
	if k.together || len(k.again) > askSingly {
		return chunks(k.again, limit)
	}
	return chunks(k.again, bounds{names: 1})
}

// first are the requests that begin a stream. Only the first request of a type may name known
// versions; the server sends the resources of a further one as a whole. A type of which no resource
// is wanted has none.
func (k *kind) first(limit bounds) (out []*discoveryv3.DeltaDiscoveryRequest) {
	k.restart()
	if k.wildcard {
		k.opened = true
		return []*discoveryv3.DeltaDiscoveryRequest{{TypeUrl: k.url,
			ResourceNamesSubscribe: []string{wildcard}, InitialResourceVersions: maps.Clone(k.versions)}}
	}
	limit.bytes /= 2 // a name comes twice, once with its version
	for chunk := range chunks(k.wanted, limit) {
		r := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: k.url, ResourceNamesSubscribe: chunk}
		if !k.opened {
			r.InitialResourceVersions = make(map[string]string, len(chunk))
			for _, name := range chunk {
				if v, ok := k.versions[name]; ok {
					r.InitialResourceVersions[name] = v
				}
			}
		}
		k.opened = true
		out = append(out, r)
	}
	return out
}

// bounds are what one request may have; 0: as much as there is.
type bounds struct{ bytes, names int }

// chunks yields names in lists within about those bounds, or of one name.
func chunks(set names, limit bounds) iter.Seq[[]string] {
	const overhead = 40 // of a name, and half of its version's
	return func(yield func([]string) bool) {
		var list []string
		size := 0
		for name := range set {
			size += len(name) + overhead
			if limit.bytes > 0 && size > limit.bytes && len(list) > 0 || limit.names > 0 && len(list) == limit.names {
				if !yield(list) {
					return
				}
				list, size = nil, len(name)+overhead
			}
			list = append(list, name)
		}
		if len(list) > 0 {
			yield(list)
		}
	}
}

// relevant leaves out of an update what is not wanted any more.
func (k *kind) relevant(u *Update) {
	if k.wildcard {
		return
	}
	u.Resources = slices.DeleteFunc(u.Resources, func(r Resource) bool { return !k.wanted.has(r.Name) })
	u.Removed = slices.DeleteFunc(u.Removed, func(name string) bool { return !k.wanted.has(name) })
}

// room refuses an update that would make more resources than most.
func (k *kind) room(u *Update, most int) error {
	n := len(k.versions)
	for _, r := range u.Resources {
		if _, ok := k.versions[r.Name]; !ok {
			n++
		}
	}
	if n > most {
		return fmt.Errorf("%d resources of type %s, at most %d are allowed", n, k.url, most)
	}
	return nil
}

// completedBy tells whether nothing is missed any more once the update is taken.
func (k *kind) completedBy(u *Update) bool {
	if len(k.missed)+len(k.again)+len(k.asked) == 0 {
		return true
	}
	here := names{}
	for name := range u.names() {
		here[name] = struct{}{}
	}
	for _, set := range []names{k.missed, k.again, k.asked} {
		for name := range set {
			if !here.has(name) {
				return false
			}
		}
	}
	return true
}

// accepted notes that an update has taken effect. It reports whether there is something
// to send now: what was missed before it.
func (k *kind) accepted(u *Update) (news bool) {
	k.answered = true
	unasked := false // something in it was not asked for again
	for name := range u.names() {
		if !k.asked.has(name) {
			unasked = true
		}
		delete(k.asked, name)
		delete(k.missed, name)
	}
	for _, r := range u.Resources {
		if k.wildcard || k.wanted.has(r.Name) {
			k.versions[r.Name] = r.Version
		}
	}
	for _, name := range u.Removed {
		delete(k.versions, name)
	}
	if !unasked || len(k.missed) == 0 {
		return false
	}
	maps.Copy(k.again, k.missed)
	k.missed = names{}
	return true
}

// refused notes that an update has not taken effect.
func (k *kind) refused(u *Update) {
	for name := range u.names() {
		delete(k.asked, name)
		if len(name) <= maxName && (k.wildcard || k.wanted.has(name)) {
			k.missed[name] = struct{}{}
		}
	}
}

// unkept notes that an update that took effect is not kept. The resource has no version then, so
// that the server sends it or its removal.
func (k *kind) unkept(u *Update) {
	for _, r := range u.Resources {
		if _, there := k.versions[r.Name]; there {
			k.versions[r.Name] = ""
		}
	}
}

// names yields those of everything in the update.
func (u *Update) names() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, r := range u.Resources {
			if !yield(r.Name) {
				return
			}
		}
		for _, name := range u.Removed {
			if !yield(name) {
				return
			}
		}
	}
}
