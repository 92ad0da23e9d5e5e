// Go-exactly-once adds up payments. Each is published twice. A consumer is killed at the worst
// moment, and its unsettled payments are delivered again to the next consumer. The sum is right all
// the same.
//
// MONGODB_URI names the database of the sum and of the marks that keep a payment from being counted
// twice. Without it both are in memory, and the consumer loses its connection instead of being
// killed.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"time"

	sluice "github.com/sluice-bus/sluice/sdk"
)

const (
	topic    = "payments"
	group    = "accounting"
	payments = 40
	// crashAt is the payment at which the first consumer crashes.
	crashAt = payments / 2
)

func main() {
	consume := flag.String("consume", "", "be a consumer that keeps its sum in this `database`; the example starts them itself")
	crash := flag.Bool("crash", false, "with -consume: crash on the way")
	flag.Parse()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	uri := os.Getenv("MONGODB_URI")
	var err error
	switch {
	case *consume != "":
		err = consumeInto(ctx, uri, *consume, *crash)
	case uri != "":
		err = withMongoDB(ctx, uri)
	default:
		err = withoutMongoDB(ctx)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// dial connects to the sidecar beside this program.
func dial(ctx context.Context) (*sluice.Client, error) {
	return sluice.Dial(ctx, cmp.Or(os.Getenv("SLUICE_URL"), "http://127.0.0.1:7070"))
}

// publish publishes every payment twice, as after an answer that was lost, and returns their sum.
func publish(ctx context.Context) (sum int, err error) {
	client, err := dial(ctx)
	if err != nil {
		return 0, err
	}
	duplicates := 0
	for n := 1; n <= payments; n++ {
		for range 2 {
			receipt, err := client.Publish(ctx, &sluice.Event{
				Topic: topic, ID: fmt.Sprintf("payment-%d", n), Payload: fmt.Appendf(nil, `{"amount":%d}`, n),
			})
			if err != nil {
				return 0, err
			}
			if receipt.Duplicate {
				duplicates++
			}
		}
		sum += n
	}
	fmt.Printf("%d payments published, %d of them again: the sidecar says that it knows them.\n", payments, duplicates)
	return sum, client.Drain(ctx)
}

// withMongoDB runs the consumers as processes of their own, of which the first is killed.
func withMongoDB(ctx context.Context, uri string) (err error) {
	ledger, err := openMongoLedger(ctx, uri, fmt.Sprintf("sluice_example_%d", time.Now().UnixNano()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ledger.drop(), ledger.close()) }()
	if err := ledger.prepare(ctx); err != nil {
		return err
	}
	fmt.Println("The sum is kept in MongoDB,", ledger.form())
	want, err := publish(ctx)
	if err != nil {
		return err
	}
	for _, crash := range []bool{true, false} {
		consumer := exec.CommandContext(ctx, os.Args[0], "-consume", ledger.db.Name(), fmt.Sprintf("-crash=%t", crash))
		consumer.Stdout, consumer.Stderr = os.Stdout, os.Stderr
		switch err := consumer.Run(); {
		case crash:
			fmt.Printf("The first consumer has ended: %v. A second one starts.\n", err)
		case err != nil:
			return fmt.Errorf("the second consumer: %w", err)
		}
	}
	return check(ctx, ledger, want)
}

// consumeInto is such a process.
func consumeInto(ctx context.Context, uri, database string, crash bool) (err error) {
	ledger, err := openMongoLedger(ctx, uri, database)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ledger.close()) }()
	if !crash {
		return consume(ctx, ledger, nil)
	}
	return consume(ctx, ledger, func(func()) {
		self, err := os.FindProcess(os.Getpid())
		if err != nil {
			log.Fatal(err)
		}
		_ = self.Kill() // SIGKILL: nothing below is run, and nothing deferred
	})
}

// withoutMongoDB runs the consumers in this process.
func withoutMongoDB(ctx context.Context) error {
	fmt.Println("MONGODB_URI is not set: the sum and the marks are in this process's memory, so the first consumer loses")
	fmt.Println("its connection instead of its life. Set MONGODB_URI to see one killed.")
	ledger, err := newMemoryLedger()
	if err != nil {
		return err
	}
	want, err := publish(ctx)
	if err != nil {
		return err
	}
	if err := consume(ctx, ledger, func(disconnect func()) { disconnect() }); err != nil {
		return err
	}
	fmt.Println("The first consumer is disconnected. A second one starts.")
	if err := consume(ctx, ledger, nil); err != nil {
		return err
	}
	return check(ctx, ledger, want)
}

func check(ctx context.Context, l ledger, want int) error {
	sum, err := l.sum(ctx)
	if err != nil {
		return err
	}
	if sum != want {
		return fmt.Errorf("the sum is %d, expected %d", sum, want)
	}
	fmt.Printf("The sum is %d: every payment is counted exactly once.\n", sum)
	return nil
}
