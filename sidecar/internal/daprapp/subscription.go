package daprapp

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// Described is a subscription as the application, or a file, describes it.
type Described struct {
	PubsubName      string            `json:"pubsubname" yaml:"pubsubname"`
	Topic           string            `json:"topic" yaml:"topic"`
	Route           string            `json:"route" yaml:"route"`
	Routes          Routes            `json:"routes" yaml:"routes"`
	DeadLetterTopic string            `json:"deadLetterTopic" yaml:"deadLetterTopic"`
	BulkSubscribe   BulkSubscribe     `json:"bulkSubscribe" yaml:"bulkSubscribe"`
	Metadata        map[string]string `json:"metadata" yaml:"metadata"`
}

// Routes say to which path an event goes: that of the first rule that matches, or else the default.
type Routes struct {
	Rules   []Rule `json:"rules" yaml:"rules"`
	Default string `json:"default" yaml:"default"`
}

// Rule is a path, and the expression that matches the events for it; "" matches all.
type Rule struct {
	Match string `json:"match" yaml:"match"`
	Path  string `json:"path" yaml:"path"`
}

// BulkSubscribe says whether events come in batches, how many of them, and how long a batch may take to fill.
type BulkSubscribe struct {
	Enabled            bool  `json:"enabled" yaml:"enabled"`
	MaxMessagesCount   int32 `json:"maxMessagesCount" yaml:"maxMessagesCount"`
	MaxAwaitDurationMS int32 `json:"maxAwaitDurationMs" yaml:"maxAwaitDurationMs"`
}

// What Dapr takes where bulkSubscribe does not say.
const (
	defaultBatch = 100
	defaultWait  = time.Second
)

// Subscription is a subscription that can be served.
type Subscription struct {
	PubsubName, Topic string
	DeadLetterTopic   string // "": none
	Raw               bool   // payloads are bytes of no CloudEvent
	routes            []route
	batch             int // 1: one by one
	wait              time.Duration
}

// Check makes a Subscription of a described one, or says why it cannot be served. A path is needed where pathNeeded says
// so: over gRPC the application may find the handler by topic.
func (d *Described) Check(pathNeeded bool) (s Subscription, err error) {
	s = Subscription{PubsubName: d.PubsubName, Topic: d.Topic, DeadLetterTopic: d.DeadLetterTopic, batch: 1}
	if d.PubsubName == "" {
		return s, errors.New("pubsubname is missing")
	}
	if bad := codec.CheckReadTopic(d.Topic); bad != nil {
		return s, errors.New(bad.Msg)
	}
	if err := checkDeadLetterTopic(d.Topic, d.DeadLetterTopic); err != nil {
		return s, err
	}
	if raw := d.Metadata["rawPayload"]; raw != "" {
		if s.Raw, err = strconv.ParseBool(raw); err != nil {
			return s, fmt.Errorf("metadata.rawPayload is %.40q; true and false are allowed", raw)
		}
	}
	if err := s.bulk(d.BulkSubscribe); err != nil {
		return s, err
	}
	return s, s.route(d, pathNeeded)
}

// checkDeadLetterTopic checks where the dead letters of a subscription to a topic go.
func checkDeadLetterTopic(topic, letters string) error {
	if letters == "" || letters == topic+wire.DeadLetterSuffix {
		return nil
	}
	if letters == topic {
		return errors.New("deadLetterTopic is the topic itself: its dead letters would come again for ever")
	}
	if bad := codec.CheckTopic(letters); bad != nil {
		return fmt.Errorf("deadLetterTopic: %s", bad.Msg)
	}
	return nil
}

// letters is the topic of the dead letters.
func (s *Subscription) letters() string {
	return cmp.Or(s.DeadLetterTopic, s.Topic+wire.DeadLetterSuffix)
}

// comesBack reports whether what dies at a subscription, and then at those that are served, comes to its topic again. letters are the
// topics of dead letters of these, by topic.
func comesBack(letters map[string][]string, s *Subscription) bool {
	reached := map[string]bool{}
	for next := []string{s.letters()}; len(next) > 0; {
		topic := next[0]
		if topic == s.Topic {
			return true
		}
		next = next[1:]
		if !reached[topic] {
			reached[topic] = true
			next = append(next, letters[topic]...)
		}
	}
	return false
}

func (s *Subscription) bulk(b BulkSubscribe) error {
	switch {
	case !b.Enabled:
		return nil
	case b.MaxMessagesCount < 0 || b.MaxMessagesCount > maxBatch:
		return fmt.Errorf("bulkSubscribe.maxMessagesCount is %d; 1 to %d are allowed", b.MaxMessagesCount, maxBatch)
	case b.MaxAwaitDurationMS < 0:
		return fmt.Errorf("bulkSubscribe.maxAwaitDurationMs is %d; it must not be negative", b.MaxAwaitDurationMS)
	}
	s.batch, s.wait = defaultBatch, defaultWait
	if b.MaxMessagesCount > 0 {
		s.batch = int(b.MaxMessagesCount)
	}
	if b.MaxAwaitDurationMS > 0 {
		s.wait = time.Duration(b.MaxAwaitDurationMS) * time.Millisecond
	}
	return nil
}

// isBulk reports whether events come in batches, also in a batch of one.
func (s *Subscription) isBulk() bool { return s.wait > 0 }

// route takes the rules, and the default as the last of them.
func (s *Subscription) route(d *Described, pathNeeded bool) error {
	rules := d.Routes.Rules
	switch {
	case d.Routes.Default != "":
		rules = append(rules[:len(rules):len(rules)], Rule{Path: d.Routes.Default})
	case d.Route != "":
		rules = append(rules[:len(rules):len(rules)], Rule{Path: d.Route})
	case len(rules) == 0 && pathNeeded:
		return errors.New("it has no route, and no default one")
	case len(rules) == 0:
		rules = []Rule{{}}
	}
	for i, rule := range rules {
		if rule.Path == "" && pathNeeded {
			return fmt.Errorf("routes.rules[%d] has no path", i)
		}
		r, err := compile(rule)
		if err != nil {
			return fmt.Errorf("routes.rules[%d].match: %w", i, err)
		}
		s.routes = append(s.routes, r)
	}
	return nil
}

// GroupOf is the consumer group of an application's subscriptions at one pubsub.
func GroupOf(appID, pubsub string) string { return appID + "." + pubsub }

// parseList reads the application's answer to GET /dapr/subscribe.
func parseList(text []byte) (list []Described, err error) {
	if len(strings.TrimSpace(string(text))) == 0 {
		return nil, nil
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("the answer to GET /dapr/subscribe is not a list of subscriptions: %w", err)
	}
	return list, nil
}
