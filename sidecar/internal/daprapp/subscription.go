package daprapp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// subscription is one of the application's subscriptions, as it describes it.
type subscription struct {
	PubsubName string `json:"pubsubname"`
	Topic      string `json:"topic"`
	Route      string `json:"route"`
	Routes     struct {
		Rules   []json.RawMessage `json:"rules"`
		Default string            `json:"default"`
	} `json:"routes"`
	DeadLetterTopic string `json:"deadLetterTopic"`
	BulkSubscribe   struct {
		Enabled bool `json:"enabled"`
	} `json:"bulkSubscribe"`
}

// list asks the application once. An application without that route has no subscriptions.
func (a *App) list(ctx context.Context) ([]subscription, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.cfg.Address.JoinPath("/dapr/subscribe").String(), nil)
	if err != nil {
		return nil, err
	}
	res, err := a.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxList))
	switch {
	case err != nil:
		return nil, err
	case res.StatusCode == http.StatusNotFound, res.StatusCode == http.StatusMethodNotAllowed, res.StatusCode == http.StatusNoContent:
		return nil, nil
	case res.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("GET /dapr/subscribe is answered with %s", res.Status)
	}
	var subs []subscription
	if err := json.Unmarshal(text, &subs); err != nil {
		return nil, fmt.Errorf("the answer to GET /dapr/subscribe is not a list of subscriptions: %w", err)
	}
	return subs, nil
}

// usable returns the subscriptions that can be served, each with its route, and logs why others
// cannot.
func (a *App) usable(list []subscription) (out []subscription) {
	seen := map[string]bool{}
	for i := range list {
		s := list[i]
		log := a.cfg.Logger.With("app", a.cfg.Address.String(), "topic", s.Topic)
		if s.Route == "" {
			s.Route = s.Routes.Default
		}
		if len(s.Routes.Rules) > 0 {
			log.Warn("the subscription has routes by rules, which are not supported: all events go to its default route", "route", s.Route)
		}
		bad := ""
		switch err := codec.CheckReadTopic(s.Topic); {
		case err != nil:
			bad = err.Msg
		case s.Route == "":
			bad = "it has no route, and no default one"
		case s.BulkSubscribe.Enabled:
			bad = "bulkSubscribe is not supported: the answer to a batch would not be understood"
		case s.DeadLetterTopic != "":
			bad = fmt.Sprintf("deadLetterTopic %q is not supported: what the application drops would be lost", s.DeadLetterTopic)
		case seen[s.Topic]:
			bad = "the topic has one already"
		case len(out) == maxSubscriptions:
			bad = fmt.Sprintf("it is beyond the %d that an application may have", maxSubscriptions)
		}
		if bad != "" {
			log.Error("a subscription of the application is not served", "error", bad)
			continue
		}
		s.Route = "/" + strings.TrimPrefix(s.Route, "/")
		seen[s.Topic] = true
		out = append(out, s)
	}
	return out
}
