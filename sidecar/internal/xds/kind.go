package xds

import (
	"fmt"
	"maps"
	"slices"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// wildcard is the name that stands for all resources of a type. It is always sent: an empty first
// request may mean the same, or nothing.
const wildcard = "*"

// askSingly is the number of resources of refused responses up to which each is requested by
// itself, so that a valid one does not come with the invalid one.
const askSingly = 64

type names map[string]struct{}

func (n names) has(name string) bool { _, ok := n[name]; return ok }

// kind is the state of one type.
type kind struct {
	Type // with the versions that the client has now

	// Of the open stream.
	answered bool  // a response of this type was accepted
	missed   names // in refused responses, and not accepted since
	again    names // those of missed that are to be requested again
	asked    names // those that were requested again and have not come yet
}

func newKind(t Type) *kind {
	t.Versions = maps.Clone(t.Versions)
	if t.Versions == nil {
		t.Versions = map[string]string{}
	}
	return &kind{Type: t, missed: names{}, again: names{}, asked: names{}}
}

// wildcard reports whether all resources of the type are wanted.
func (k *kind) wildcard() bool { return len(k.Names) == 0 }

// first returns the request that begins a stream.
func (k *kind) first() *discoveryv3.DeltaDiscoveryRequest {
	k.answered = false
	clear(k.missed)
	clear(k.again)
	clear(k.asked)
	subscribe := k.Names
	if k.wildcard() {
		subscribe = []string{wildcard}
	}
	return &discoveryv3.DeltaDiscoveryRequest{TypeUrl: k.URL, ResourceNamesSubscribe: subscribe,
		InitialResourceVersions: maps.Clone(k.Versions)}
}

// requests returns those that request resources of refused responses again.
func (k *kind) requests() (out []*discoveryv3.DeltaDiscoveryRequest) {
	tell := func(subscribe, unsubscribe []string) {
		out = append(out, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: k.URL,
			ResourceNamesSubscribe: subscribe, ResourceNamesUnsubscribe: unsubscribe})
	}
	again := slices.Collect(maps.Keys(k.again))
	if len(again) == 0 {
		return nil
	}
	if !k.wildcard() {
		tell(nil, again) // so that the server forgets that it sent them
	}
	size := 1
	if k.Together || len(again) > askSingly {
		size = len(again)
	}
	for group := range slices.Chunk(again, size) {
		if k.wildcard() {
			// Subscribing to a name and unsubscribing at once requests a single resource of a
			// wildcard: the server sends it, or its removal.
			tell(group, group)
		} else {
			tell(group, nil)
		}
	}
	maps.Copy(k.asked, k.again)
	k.again = names{}
	return out
}

// relevant removes unwanted resources from an update.
func (k *kind) relevant(u *Update) {
	if k.wildcard() {
		return
	}
	u.Resources = slices.DeleteFunc(u.Resources, func(r Resource) bool { return !slices.Contains(k.Names, r.Name) })
	u.Removed = slices.DeleteFunc(u.Removed, func(name string) bool { return !slices.Contains(k.Names, name) })
}

// room refuses an update with which there would be more resources than most.
func (k *kind) room(u *Update, most int) error {
	n := len(k.Versions)
	for _, r := range u.Resources {
		if _, ok := k.Versions[r.Name]; !ok {
			n++
		}
	}
	if n > most {
		return fmt.Errorf("%d resources of type %s, at most %d are allowed", n, k.URL, most)
	}
	return nil
}

// completedBy reports whether no resource is missing once the update is accepted.
func (k *kind) completedBy(u *Update) bool {
	here := names{}
	for _, name := range u.names() {
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

// accepted records that an update is in force. It reports whether resources of earlier responses
// are to be requested again now.
func (k *kind) accepted(u *Update) (news bool) {
	k.answered = true
	unasked := false // one of its resources was not requested again
	for _, name := range u.names() {
		if !k.asked.has(name) {
			unasked = true
		}
		delete(k.asked, name)
		delete(k.missed, name)
	}
	for _, r := range u.Resources {
		k.Versions[r.Name] = r.Version
	}
	for _, name := range u.Removed {
		delete(k.Versions, name)
	}
	if !unasked || len(k.missed) == 0 {
		return false
	}
	maps.Copy(k.again, k.missed)
	k.missed = names{}
	return true
}

// refused records that an update is not in force.
func (k *kind) refused(u *Update) {
	for _, name := range u.names() {
		delete(k.asked, name)
		if len(name) <= maxName {
			k.missed[name] = struct{}{}
		}
	}
}

// unkept records that an update is in force and not stored. Its resources have no version then, so
// that the server sends them or their removal.
func (k *kind) unkept(u *Update) {
	for _, r := range u.Resources {
		if _, there := k.Versions[r.Name]; there {
			k.Versions[r.Name] = ""
		}
	}
}

// names returns the names of all resources in the update.
func (u *Update) names() []string {
	list := slices.Clone(u.Removed)
	for _, r := range u.Resources {
		list = append(list, r.Name)
	}
	return list
}
