// Fleet-limits shows one limit that holds for a fleet of sidecars together: publishers with unequal
// load, the part of it that passes at each sidecar, and a change of the limit while they publish.
//
//	fleet-limits CONTROL-PLANE-URL NAME=SIDECAR-URL...
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/sdk/admin"
)

const (
	topic = "orders.created"
	burst = 10
	phase = 5 // seconds that each limit is watched
)

// load is what the publisher at each sidecar tries to publish a second.
var load = []int{150, 60, 20}

func main() {
	if len(os.Args) != 2+len(load) {
		log.Fatalf("usage: fleet-limits CONTROL-PLANE-URL and %d times NAME=SIDECAR-URL", len(load))
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, &admin.ControlPlane{URL: os.Args[1]}, os.Args[2:]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, plane *admin.ControlPlane, sidecars []string) error {
	var publishers []*publisher
	for i, sidecar := range sidecars {
		node, url, _ := strings.Cut(sidecar, "=")
		p, err := startPublisher(ctx, node, url, load[i])
		if err != nil {
			return err
		}
		defer p.stop()
		publishers = append(publishers, p)
	}
	for _, limit := range []int{100, 30} {
		if err := setLimit(ctx, plane, limit, len(sidecars)); err != nil {
			return err
		}
		fmt.Printf("\nThe limit of %s is now %d/s for all sidecars together.\n\n", topic, limit)
		if err := watch(publishers, limit); err != nil {
			return err
		}
	}
	return nil
}

// setLimit changes the topic's policy, and waits until every sidecar has said that it enforces it.
func setLimit(ctx context.Context, plane *admin.ControlPlane, limit, sidecars int) error {
	document := fmt.Appendf(nil, `{"publish":{"rate":%d,"burst":%d,"scope":"fleet"}}`, limit, burst)
	policy, err := plane.PutPolicy(ctx, topic, document, admin.Condition{})
	if err != nil {
		return err
	}
	for {
		using, err := plane.SidecarsUsing(ctx, topic)
		if err != nil {
			return err
		}
		behind := func(s admin.Sidecar) bool { return s.Versions[topic] != policy.Version }
		if len(using) == sidecars && !slices.ContainsFunc(using, behind) {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return errors.New("not every sidecar has taken the policy in time")
		}
	}
}

// watch prints a row a second with the events that pass and are refused at each sidecar, and then
// the totals.
func watch(publishers []*publisher, limit int) error {
	fmt.Print("second ")
	for _, p := range publishers {
		fmt.Printf(" | %-22s", fmt.Sprintf("%s publishes %d/s", p.node, p.rate))
	}
	fmt.Printf(" | together passes\n")

	began, first := time.Now(), total(publishers)
	last := first
	for second := 1; second <= phase; second++ {
		time.Sleep(time.Until(began.Add(time.Duration(second) * time.Second)))
		now := total(publishers)
		fmt.Printf("%6d ", second)
		for i := range publishers {
			passed := now.each[i].minus(last.each[i])
			fmt.Printf(" | %3d pass %3d refused  ", passed.allowed, passed.denied)
		}
		fmt.Printf(" | %3d of %d\n", now.sum.minus(last.sum).allowed, limit)
		last = now
	}
	took, all := last.at.Sub(began).Seconds(), last.sum.minus(first.sum)
	fmt.Printf("\n%d passed in %.1f s: %.0f/s, the limit is %d/s; %d were refused.\n",
		all.allowed, took, float64(all.allowed)/took, limit, all.denied)
	// The promise is 10 % over 10 s, plus burst. This run is shorter, and begins with the shares of
	// the limit before.
	if most := 2 * (burst + float64(limit)*took); float64(all.allowed) > most || all.allowed == 0 {
		return fmt.Errorf("%d events passed; expected some, and at most %.0f", all.allowed, most)
	}
	return nil
}
