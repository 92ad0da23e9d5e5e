// Package topiclist tells the control plane which topics exist in the sidecar's store, whenever the
// control plane asks this sidecar for it.
package topiclist

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/internal/policypb"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

const (
	// listEvery is the interval in which the topics are listed, and in which the control plane is
	// tried again.
	listEvery = 3 * time.Second
	// firstWithin bounds the first listing, for which the control plane waits.
	firstWithin = 5 * time.Second
)

// Log lists the topics of the store. An error says that it cannot be reached now.
type Log interface {
	Topics(ctx context.Context) ([]eventlog.Topic, error)
}

// Config is what a Reporter needs; every field is required.
type Config struct {
	Conn           grpc.ClientConnInterface // to the control plane
	NodeID         string
	InstanceSecret string
	StoreID        func() string // "": the store is not known yet
	Log            Log
	Logger         *slog.Logger
}

// Reporter reports the topics.
type Reporter struct{ cfg Config }

// New makes a Reporter.
func New(cfg Config) *Reporter { return &Reporter{cfg} }

// Run reports until ctx ends.
func (r *Reporter) Run(ctx context.Context) error {
	for {
		if store := r.cfg.StoreID(); store != "" {
			err := r.serve(ctx, store)
			if code := status.Code(err); ctx.Err() == nil && code != codes.Unavailable { // the log has lost connections already
				r.cfg.Logger.Warn("the control plane takes no list of topics", "error", err, "again_in", listEvery)
			}
		}
		if !pause.For(ctx, listEvery) {
			return nil
		}
	}
}

type link = grpc.BidiStreamingClient[policypb.TopicsPage, emptypb.Empty]

// serve answers the requests of one stream.
func (r *Reporter) serve(ctx context.Context, store string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	named := metadata.AppendToOutgoingContext(ctx,
		policypb.StreamNodeID, r.cfg.NodeID, policypb.StreamInstanceSecret, r.cfg.InstanceSecret, policypb.StreamStoreID, store)
	stream, err := r.cfg.Conn.NewStream(named, &policypb.TopicsStream, policypb.TopicsMethod)
	if err != nil {
		return err
	}
	to := link(&grpc.GenericClientStream[policypb.TopicsPage, emptypb.Empty]{ClientStream: stream})
	requests := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		defer stop() // the wait for a change ends with the stream
		ended <- receive(ctx, to, requests)
	}()
	l := list{log: r.cfg.Log, known: map[string]bool{}}
	for err == nil {
		select {
		case <-requests:
			var page *policypb.TopicsPage
			if page, err = l.next(ctx); err == nil {
				err = to.Send(page)
			}
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	stop()
	return errors.Join(err, <-ended)
}

func receive(ctx context.Context, from link, to chan<- struct{}) error {
	for {
		if _, err := from.Recv(); err != nil {
			return err
		}
		select {
		case to <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// list makes pages of the topics, and of their changes.
type list struct {
	log            Log
	known          map[string]bool // as of the last listing
	listed         bool
	added, removed []string // that are not in a page yet
}

// next returns the next page. It waits for a change, unless it is the first page. An error says
// that the store cannot be reached for the first page, so that another sidecar should be asked.
func (l *list) next(ctx context.Context) (*policypb.TopicsPage, error) {
	if !l.listed {
		first, cancel := context.WithTimeout(ctx, firstWithin)
		defer cancel()
		if err := l.look(first); err != nil {
			return nil, err
		}
	} else {
		for len(l.added)+len(l.removed) == 0 {
			if !pause.For(ctx, listEvery) {
				return nil, ctx.Err()
			}
			_ = l.look(ctx) // while the store cannot be reached, its topics stay as they were
		}
	}
	page := &policypb.TopicsPage{}
	page.Removed, l.removed = cut(l.removed, policypb.MaxTopicsPage)
	page.Added, l.added = cut(l.added, policypb.MaxTopicsPage-len(page.GetRemoved()))
	page.Last = len(l.added)+len(l.removed) == 0
	return page, nil
}

// look finds the changes since the last listing.
func (l *list) look(ctx context.Context) error {
	topics, err := l.log.Topics(ctx)
	if err != nil {
		return err
	}
	exist := make(map[string]bool, len(topics))
	for i := range topics {
		name := topics[i].Name
		if exist[name] = true; !l.known[name] {
			l.added = append(l.added, name)
		}
	}
	for name := range l.known {
		if !exist[name] {
			l.removed = append(l.removed, name)
		}
	}
	l.known, l.listed = exist, true
	return nil
}

func cut(names []string, n int) (head, rest []string) {
	n = min(n, len(names))
	return names[:n], names[n:]
}
