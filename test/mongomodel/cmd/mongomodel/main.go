// Command mongomodel is a replica set of package mongomodel that programs under test connect to
// over TCP, each member at a free port of the loopback interface.
//
// Once it serves, it prints {"ready":true,"uri":"mongodb://…"} to stdout. It ends when its standard
// input does, so that it cannot outlive a test process that was killed, and then writes its last
// commands to stderr. Lines on standard input are orders, each answered by a line {"done":"…"} or
// {"error":"…"}: "kill N" and "restart N" for member N, "stepdown" for the primary.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/sluice-bus/sluice/test/mongomodel"
)

func main() {
	var o mongomodel.Options
	flag.IntVar(&o.Members, "members", 3, "how many members the set has")
	flag.DurationVar(&o.ElectionTimeout, "election-timeout", 0, "after which time without a primary there is an election")
	flag.DurationVar(&o.TransactionLifetime, "transaction-lifetime", 0, "how long a transaction may be open")
	flag.DurationVar(&o.TTLInterval, "ttl-interval", 0, "the time between two passes over the TTL indexes")
	flag.DurationVar(&o.HelloWait, "hello-wait", 0, "for how long at most drivers wait at the server for changes of the set")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "mongomodel:", err)
		os.Exit(1)
	}
}

func run(o mongomodel.Options) error {
	var listeners []net.Listener
	for range o.Members {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		listeners = append(listeners, l)
	}
	if len(listeners) == 0 {
		return errors.New("--members must be 1 or more")
	}
	s := mongomodel.Listen(o, listeners)
	defer s.Close()
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(map[string]any{"ready": true, "uri": s.URI()}); err != nil {
		return err
	}
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		answer := map[string]string{"done": orders.Text()}
		if err := obey(s, o.Members, strings.Fields(orders.Text())); err != nil {
			answer = map[string]string{"error": err.Error()}
		}
		if err := out.Encode(answer); err != nil {
			return err
		}
	}
	s.WriteTrace(os.Stderr)
	return orders.Err()
}

func obey(s *mongomodel.Set, members int, order []string) error {
	if len(order) == 1 && order[0] == "stepdown" {
		p := s.Primary()
		if p < 0 {
			return errors.New("there is no primary")
		}
		s.StepDown(p)
		return nil
	}
	if len(order) != 2 || order[0] != "kill" && order[0] != "restart" {
		return fmt.Errorf("the order %q is not known: kill N, restart N, stepdown", strings.Join(order, " "))
	}
	i, err := strconv.Atoi(order[1])
	if err != nil || i < 0 || i >= members {
		return fmt.Errorf("the member %q is not there: they are 0 to %d", order[1], members-1)
	}
	if order[0] == "kill" {
		s.Kill(i)
	} else {
		s.Restart(i)
	}
	return nil
}
