package sidecar

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/internal/pause"
	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/exactlyonce"
	"github.com/sluice-bus/sluice/sdk/mongo/oncestore"
	"github.com/sluice-bus/sluice/sdk/option"
)

const (
	ordersTopic, paymentsTopic = "orders", "payments"
	payingGroup, readingGroup  = "payments", "readmodel"
	serviceArgument            = "service"

	// claimLease is how long the event of a consumer that has died waits for the next consumer.
	claimLease = 2 * time.Second
	// stopTimeout bounds how long a service that is asked to end settles its open work.
	stopTimeout = 30 * time.Second
)

// An order is a document of the orders service, and the payload of its event. The number counts the
// orders of a customer. The customer is the event's key.
type order struct {
	ID       string `bson:"_id" json:"-"`
	Customer string `json:"customer"`
	Number   int    `json:"number"`
	Amount   int    `json:"amount"`
	// Published is set behind the publish; until then the order is published again.
	Published bool `json:"-"`
}

// An account is the payments service's record of a customer.
type account struct {
	Customer string `bson:"_id"`
	Charges  int
	Sum      int
	Last     int // the number of the last order
}

// A row of the read model is one order, as the two topics describe it.
type row struct {
	ID       string `bson:"_id"`
	Customer string
	Amount   int
	Paid     int
}

// service is one process of the application.
type service struct {
	client   *sluice.Client
	orders   *mongo.Collection
	accounts *mongo.Collection
	rows     *mongo.Collection
	progress *mongo.Collection // of the read model, by topic and customer
	faults   *mongo.Collection // broken promises that a service has seen
	store    *oncestore.Store
}

// serve is the program of each service. It is ready at once: it waits for its sidecar and its
// database.
func serve(args []string) int {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	if err := run(ctx, args); err != nil {
		slog.Error("the service has failed", "error", err)
		return 1
	}
	return 0
}

func run(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet(serviceArgument, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	name, url := flags.String("name", "", ""), flags.String("sidecar", "", "")
	uri, database := flags.String("uri", "", ""), flags.String("database", "", "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	begin := map[string]func(*service, context.Context) error{"orders": (*service).sell, "payments": (*service).charge,
		"readmodel": (*service).read}[*name]
	if begin == nil {
		return fmt.Errorf("no service is called %q", *name)
	}
	fmt.Println(`{"ready":true}`)

	mongoClient, err := mongo.Connect(options.Client().ApplyURI(*uri).SetServerSelectionTimeout(2 * time.Second))
	if err != nil {
		return err
	}
	db := mongoClient.Database(*database)
	s := &service{
		orders: db.Collection("orders"), accounts: db.Collection("accounts"), rows: db.Collection("rows"),
		progress: db.Collection("progress"), faults: db.Collection("faults"),
		store: oncestore.New(db, oncestore.Options{}),
	}
	s.client, err = sluice.Dial(ctx, *url, sluice.WithWait(), sluice.WithBackoff(50*time.Millisecond, 500*time.Millisecond))
	if err != nil {
		return ended(ctx, err)
	}
	if err := ended(ctx, begin(s, ctx)); err != nil {
		return err
	}
	<-ctx.Done()
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	return errors.Join(s.client.Drain(end), mongoClient.Disconnect(end))
}

// ended drops an error that comes only because the service is to end.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// sell publishes the orders of the database, those of a customer one after the other, and marks
// them there: the collection is an outbox.
func (s *service) sell(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := s.sellOnce(ctx); err != nil {
			slog.Warn("orders wait", "error", err)
		}
		pause.For(ctx, 20*time.Millisecond)
	}
	return nil
}

func (s *service) sellOnce(ctx context.Context) error {
	found, err := s.orders.Find(ctx, bson.D{{Key: "published", Value: false}}, options.Find().SetSort(bson.D{{Key: "number", Value: 1}}))
	if err != nil {
		return err
	}
	var all []order
	if err := found.All(ctx, &all); err != nil {
		return err
	}
	byCustomer := map[string][]order{}
	for _, o := range all {
		byCustomer[o.Customer] = append(byCustomer[o.Customer], o)
	}
	var selling sync.WaitGroup
	errs := make(chan error, len(byCustomer))
	for _, orders := range byCustomer {
		selling.Go(func() { errs <- s.sellTo(ctx, orders) })
	}
	selling.Wait()
	close(errs)
	for e := range errs {
		err = errors.Join(err, e)
	}
	return err
}

func (s *service) sellTo(ctx context.Context, orders []order) error {
	for _, o := range orders {
		payload, err := bson.MarshalExtJSON(bson.D{{Key: "customer", Value: o.Customer}, {Key: "number", Value: o.Number},
			{Key: "amount", Value: o.Amount}}, false, false)
		if err != nil {
			return err
		}
		if _, err := s.client.Publish(ctx, &sluice.Event{Topic: ordersTopic, ID: o.ID, Key: o.Customer, Payload: payload}); err != nil {
			return err
		}
		if _, err := s.orders.UpdateByID(ctx, o.ID, bson.D{{Key: "$set", Value: bson.D{{Key: "published", Value: true}}}}); err != nil {
			return err
		}
	}
	return nil
}

// charge adds each order to its customer's account, once, and publishes a payment after that. A
// repeated publish sends the same payment.
func (s *service) charge(ctx context.Context) error {
	once, err := s.once(ctx, ordersTopic, payingGroup)
	if err != nil {
		return err
	}
	charge := exactlyonce.OnceTx(once, sluice.JSON(func(ctx context.Context, m *sluice.Message, o order) error {
		var before account
		err := s.accounts.FindOneAndUpdate(ctx, bson.D{{Key: "_id", Value: o.Customer}}, bson.D{
			{Key: "$inc", Value: bson.D{{Key: "charges", Value: 1}, {Key: "sum", Value: o.Amount}}},
			{Key: "$set", Value: bson.D{{Key: "last", Value: o.Number}}},
		}, options.FindOneAndUpdate().SetUpsert(true)).Decode(&before)
		if err != nil && !errors.Is(err, mongo.ErrNoDocuments) {
			return err
		}
		if o.Number != before.Last+1 {
			return s.fault(ctx, "order %s was charged behind number %d", m.Event.ID, before.Last)
		}
		return nil
	}))
	return s.subscribe(ctx, ordersTopic, payingGroup, func(ctx context.Context, m *sluice.Message) error {
		if err := charge(ctx, m); err != nil {
			return err
		}
		_, err := s.client.Publish(ctx, &sluice.Event{
			Topic: paymentsTopic, ID: m.Event.ID + ".charged", Key: m.Event.Key, CausedBy: []string{m.Event.ID}, Payload: m.Event.Payload,
		})
		return err
	})
}

// read makes rows of orders and payments. An order's row is the outcome of its event. The payment
// is added to it by a write that may come twice.
func (s *service) read(ctx context.Context) error {
	ofOrders, err := s.once(ctx, ordersTopic, readingGroup)
	if err != nil {
		return err
	}
	ofPayments, err := s.once(ctx, paymentsTopic, readingGroup)
	if err != nil {
		return err
	}
	err = s.subscribe(ctx, ordersTopic, readingGroup,
		exactlyonce.OnceClaimed(ofOrders, func(ctx context.Context, m *sluice.Message, c *exactlyonce.Claim) error {
			o, err := s.next(ctx, m)
			if err != nil {
				return err
			}
			return oncestore.SetFenced(ctx, s.rows, m.Event.ID, c, bson.D{{Key: "customer", Value: o.Customer}, {Key: "amount", Value: o.Amount}})
		}))
	if err != nil {
		return err
	}
	return s.subscribe(ctx, paymentsTopic, readingGroup, exactlyonce.Once(ofPayments, func(ctx context.Context, m *sluice.Message) error {
		o, err := s.next(ctx, m)
		if err != nil {
			return err
		}
		_, err = s.rows.UpdateByID(ctx, m.Event.CausedBy[0], bson.D{{Key: "$set", Value: bson.D{{Key: "paid", Value: o.Amount}}}},
			options.UpdateOne().SetUpsert(true))
		return err
	}))
}

// next notes how far the read model has got with a customer's orders. An order may come again, and
// none is left out.
func (s *service) next(ctx context.Context, m *sluice.Message) (o order, err error) {
	if o, err = sluice.Decode[order](&m.Event); err != nil {
		return o, sluice.DeadLetter(err)
	}
	id := bson.D{{Key: "_id", Value: m.Event.Topic + "/" + o.Customer}}
	var before account
	if err := s.progress.FindOne(ctx, id).Decode(&before); err != nil && !errors.Is(err, mongo.ErrNoDocuments) {
		return o, err
	}
	if o.Number > before.Last+1 { // the fault comes first: where it cannot be kept, the event comes again
		if err := s.fault(ctx, "the read model got %s of %s behind number %d", m.Event.ID, m.Event.Topic, before.Last); err != nil {
			return o, err
		}
	}
	_, err = s.progress.UpdateOne(ctx, id, bson.D{{Key: "$max", Value: bson.D{{Key: "last", Value: o.Number}}}},
		options.UpdateOne().SetUpsert(true))
	return o, err
}

// fault keeps a broken promise for the test. If the database does not take it, the error makes the
// event come again.
func (s *service) fault(ctx context.Context, format string, args ...any) error {
	_, err := s.faults.InsertOne(ctx, bson.D{{Key: "says", Value: fmt.Sprintf(format, args...)}})
	return err
}

// once is the handler of a group's effects, as soon as the database is there.
func (s *service) once(ctx context.Context, topic, group string) (*exactlyonce.Handler, error) {
	for {
		err := s.store.EnsureIndexes(ctx)
		if err == nil {
			break
		}
		if slog.Warn("the database is awaited", "error", err); !pause.For(ctx, 100*time.Millisecond) {
			return nil, err
		}
	}
	return exactlyonce.New(s.store, exactlyonce.Options{Scope: exactlyonce.Scope(topic, group), Lease: claimLease})
}

func (s *service) subscribe(ctx context.Context, topic, group string, handler sluice.Handler) error {
	_, err := s.client.Subscribe(ctx, topic, group, handler, option.FromEarliest(), option.Concurrency(4))
	return err
}
