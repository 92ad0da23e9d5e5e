package sluicepubsub

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/wire"
	"gocloud.dev/pubsub"
)

// Scheme is the scheme of the URLs that pubsub.OpenTopic and pubsub.OpenSubscription open.
const Scheme = "sluice"

// defaultHost is the address of a sidecar's app listener.
const defaultHost = "127.0.0.1:7070"

func init() {
	opener := &URLOpener{}
	pubsub.DefaultURLMux().RegisterTopic(Scheme, opener)
	pubsub.DefaultURLMux().RegisterSubscription(Scheme, opener)
}

// URLOpener opens topics and subscriptions by the URLs that the package describes. The one that is registered for Scheme makes
// a client for each host and keeps it; another one with options, a token for example, goes into a pubsub.URLMux of one's own.
type URLOpener struct {
	// Options are those of the clients.
	Options []sluice.Option

	mu      sync.Mutex
	clients map[string]*sluice.Client
}

// OpenTopicURL opens sluice://HOST/TOPIC. The parameter key_name is TopicOptions.KeyName.
func (o *URLOpener) OpenTopicURL(ctx context.Context, u *url.URL) (*pubsub.Topic, error) {
	parameters, err := parametersOf(u, "key_name")
	if err != nil {
		return nil, err
	}
	client, err := o.client(ctx, u.Host)
	if err != nil {
		return nil, err
	}
	return OpenTopic(client, topicOf(u), &TopicOptions{KeyName: parameters.Get("key_name")}), nil
}

// OpenSubscriptionURL opens sluice://HOST/TOPIC?group=GROUP. The parameter from is where a group that is new starts: earliest or
// latest.
func (o *URLOpener) OpenSubscriptionURL(ctx context.Context, u *url.URL) (*pubsub.Subscription, error) {
	parameters, err := parametersOf(u, "from", "group")
	if err != nil {
		return nil, err
	}
	group, from := parameters.Get("group"), parameters.Get("from")
	if group == "" {
		return nil, fmt.Errorf("sluicepubsub: %s has no parameter group", u)
	}
	if !slices.Contains([]string{"", wire.FromEarliest, wire.FromLatest}, from) {
		return nil, fmt.Errorf("sluicepubsub: from is %q: it is earliest or latest", from)
	}
	client, err := o.client(ctx, u.Host)
	if err != nil {
		return nil, err
	}
	return OpenSubscription(client, topicOf(u), group, &SubscriptionOptions{Options: wire.SubscribeOptions{From: from}}), nil
}

func topicOf(u *url.URL) string { return strings.TrimPrefix(u.Path, "/") }

func parametersOf(u *url.URL, known ...string) (url.Values, error) {
	parameters, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("sluicepubsub: %s: %w", u, err)
	}
	for name := range parameters {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("sluicepubsub: %s has the parameter %q: known are %s", u, name, strings.Join(known, ", "))
		}
	}
	return parameters, nil
}

func (o *URLOpener) client(ctx context.Context, host string) (*sluice.Client, error) {
	if host == "" {
		host = defaultHost
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if client := o.clients[host]; client != nil {
		return client, nil
	}
	client, err := sluice.Dial(ctx, "http://"+host, o.Options...)
	if err != nil {
		return nil, err
	}
	if o.clients == nil {
		o.clients = map[string]*sluice.Client{}
	}
	o.clients[host] = client
	return client, nil
}
