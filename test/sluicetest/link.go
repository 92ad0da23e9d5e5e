package sluicetest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// link is a client's connection and the one to the sidecar that belongs to it. Frames pass
// unchanged, except for those that the options change. Messages in several frames pass unseen; no
// client of Sluice sends them.
type link struct {
	of              *Sidecar
	client, sidecar net.Conn

	mu    sync.Mutex          // of writing to the client, and of asked
	asked map[string]*request // the requests whose answer needs a look, by corr
	mute  bool                // the client gets nothing any more
}

// request is one that was passed on.
type request struct {
	*codec.Request
	breaks  bool                // the connection breaks instead of the answer
	refused map[int]*wire.Error // of a batch's items: they were left out
}

func refuse(w http.ResponseWriter, err *wire.Error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(err.Code.HTTPStatus())
	_, _ = w.Write(codec.AppendErrorBody(nil, err)) // nobody is left to tell
}

func (s *Sidecar) serveSocket(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		refuse(w, wire.Errorf(wire.StoreUnavailable, "down"))
		return
	}
	server, err := net.Dial("tcp", s.run.Load().app)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err == nil {
		err = r.Write(server)
	}
	if err != nil {
		server.Close()
		panic(http.ErrAbortHandler)
	}
	l := &link{of: s, client: client, sidecar: server, asked: map[string]*request{}}
	s.open[l] = struct{}{}
	var both sync.WaitGroup
	both.Go(func() { l.pass(buffered.Reader, l.fromClient) })
	both.Go(func() {
		answers := bufio.NewReader(server)
		if l.shakeHands(r, answers) != nil {
			l.breakOff()
			return
		}
		l.pass(answers, l.fromSidecar)
	})
	s.links.Go(func() {
		both.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, l)
	})
}

// shakeHands passes the answer to the request for a WebSocket.
func (l *link) shakeHands(r *http.Request, answers *bufio.Reader) error {
	response, err := http.ReadResponse(answers, r)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := response.Write(l.client); err != nil {
		return err
	}
	if response.StatusCode != http.StatusSwitchingProtocols {
		return errors.New("it was refused")
	}
	return nil
}

func (l *link) breakOff() {
	_, _ = l.client.Close(), l.sidecar.Close() // they may be closed already
}

// pass reads frames until one of the connections ends, or one of them is not to be passed.
func (l *link) pass(from *bufio.Reader, to func(*frame) error) {
	defer l.breakOff()
	var f frame
	for {
		if f.read(from) != nil || to(&f) != nil {
			return
		}
	}
}

var errBroken = errors.New("the connection is to break")

// fromClient passes a request, answers it, or breaks the connection.
func (l *link) fromClient(f *frame) error {
	forward := func() error {
		_, err := l.sidecar.Write(f.raw)
		return err
	}
	if !f.isText() {
		return forward()
	}
	r, bad := codec.DecodeRequest(f.text, wire.DefaultLimits())
	if bad != nil {
		return forward() // the sidecar says so
	}
	fate := Served
	if l.of.opts.Fate != nil {
		fate = l.of.opts.Fate(r.Op)
	}
	switch fate {
	case BrokenBefore:
		return errBroken
	case Ignored:
		return nil
	}
	passed := &request{Request: r, breaks: fate == BrokenAfter, refused: map[int]*wire.Error{}}
	l.mu.Lock()
	l.asked[r.Corr] = passed
	l.mute = l.mute || passed.breaks
	l.mu.Unlock()
	if answer := l.of.answer(passed); answer != nil {
		return l.answer(passed, answer)
	}
	if len(passed.refused) > 0 {
		rest := make([]wire.PublishItem, 0, len(r.Events))
		for i, item := range r.Events {
			if passed.refused[i] == nil {
				rest = append(rest, item)
			}
		}
		_, err := l.sidecar.Write(appendFrame(nil, codec.AppendPublishBatch(nil, r.Corr, r.Topic, rest), true))
		return err
	}
	return forward()
}

// fromSidecar passes frames to the client.
func (l *link) fromSidecar(f *frame) error {
	if !f.isText() || !bytes.HasPrefix(f.text, []byte(`{"op":"OK"`)) && !bytes.HasPrefix(f.text, []byte(`{"op":"ERR"`)) {
		return l.send(f.raw)
	}
	reply, err := codec.DecodeReply(f.text)
	if err != nil {
		return err
	}
	l.mu.Lock()
	r := l.asked[reply.Corr]
	l.mu.Unlock()
	if r == nil {
		return l.send(f.raw)
	}
	if reply.Err == nil {
		l.of.count(r.Request)
	}
	if len(r.refused) > 0 && reply.Err == nil {
		results := make([]wire.ResultItem, len(r.Events))
		for i := range results {
			if results[i].Err = r.refused[i]; results[i].Err == nil {
				results[i], reply.Results = reply.Results[0], reply.Results[1:]
			}
		}
		return l.answer(r, codec.AppendResults(nil, results, r.Corr, r.HasCorr))
	}
	return l.answered(r, f.raw)
}

// answer answers a request in the sidecar's place.
func (l *link) answer(r *request, text []byte) error {
	return l.answered(r, appendFrame(nil, text, false))
}

// answered passes an answer, or breaks the connection instead.
func (l *link) answered(r *request, raw []byte) error {
	l.mu.Lock()
	delete(l.asked, r.Corr)
	l.mu.Unlock()
	if r.breaks {
		return errBroken
	}
	return l.send(raw)
}

func (l *link) send(raw []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mute {
		return nil
	}
	_, err := l.client.Write(raw)
	return err
}

// answer is the answer to a request that the sidecar must not see; nil: the request is passed on,
// without the items of a batch that are refused.
func (s *Sidecar) answer(r *request) []byte {
	s.asking.Lock()
	defer s.asking.Unlock()
	refusal := func(err *wire.Error) []byte {
		if err == nil {
			return nil
		}
		return codec.AppendErr(nil, err, r.Corr, r.HasCorr)
	}
	switch {
	case r.Op == wire.OpAuth && s.opts.RefuseToken != nil:
		return refusal(s.opts.RefuseToken(r.Token))
	case (r.Op == wire.OpAck || r.Op == wire.OpNack) && s.opts.RefuseSettling != nil:
		return refusal(s.opts.RefuseSettling(r.Op, r.IDs))
	case r.Op != wire.OpPublish || s.opts.Refuse == nil && !s.opts.Forget:
		return nil
	case !r.IsBatch:
		result := s.publish(r.Topic, &r.Publish)
		if s.opts.Forget && result.Err == nil {
			return codec.AppendReceipt(nil, &result.Receipt, r.Corr, r.HasCorr)
		}
		return refusal(result.Err)
	}
	results := make([]wire.ResultItem, len(r.Events))
	for i := range r.Events {
		if results[i] = s.publish(r.Topic, &r.Events[i]); results[i].Err != nil {
			r.refused[i] = results[i].Err
		}
	}
	if s.opts.Forget || len(r.refused) == len(r.Events) {
		return codec.AppendResults(nil, results, r.Corr, r.HasCorr)
	}
	return nil
}

// publish is the result of an event by the options: the refusal, or the receipt of an event that is
// forgotten.
func (s *Sidecar) publish(topic string, item *wire.PublishItem) wire.ResultItem {
	if item.Err != nil {
		return wire.ResultItem{Err: item.Err}
	}
	e := &item.Event
	if e.Topic == "" {
		e.Topic = topic
	}
	if s.opts.Refuse != nil {
		if err := s.opts.Refuse(e); err != nil {
			return wire.ResultItem{Err: err}
		}
	}
	s.forgotten++
	return wire.ResultItem{Receipt: wire.Receipt{ID: e.ID, TS: e.TS, Seq: s.forgotten}}
}

// count counts requests that were answered with OK.
func (s *Sidecar) count(r *codec.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Op == wire.OpModAck {
		s.extended[groupName{r.Topic, r.Group}]++
	}
}

// frame is one of RFC 6455.
type frame struct {
	raw  []byte // all of it
	text []byte // what it says, unmasked
}

const (
	textFrame = 0x81 // a whole message
	maxFrame  = 64 << 20
)

func (f *frame) isText() bool { return f.raw[0] == textFrame }

func (f *frame) read(from *bufio.Reader) error {
	head, err := from.Peek(2)
	if err != nil {
		return err
	}
	size, masked := uint64(head[1]&0x7f), head[1]&0x80 != 0
	digits := map[uint64]int{126: 2, 127: 8}[size] // bytes of a size that does not fit in the head
	rest := 2 + digits
	if masked {
		rest += 4
	}
	f.raw = append(f.raw[:0], make([]byte, rest)...)
	if _, err := io.ReadFull(from, f.raw); err != nil {
		return err
	}
	if digits > 0 {
		var wide [8]byte
		copy(wide[8-digits:], f.raw[2:2+digits])
		size = binary.BigEndian.Uint64(wide[:])
	}
	if size > maxFrame {
		return errors.New("a frame of more than 64 MiB")
	}
	f.raw = append(f.raw, make([]byte, size)...)
	if _, err := io.ReadFull(from, f.raw[rest:]); err != nil {
		return err
	}
	f.text = append(f.text[:0], f.raw[rest:]...)
	if masked {
		for i := range f.text {
			f.text[i] ^= f.raw[rest-4+i%4]
		}
	}
	return nil
}

// appendFrame appends a message; a client's has to be masked, here with zeroes.
func appendFrame(dst, text []byte, masked bool) []byte {
	mask := byte(0)
	if masked {
		mask = 0x80
	}
	dst = append(dst, textFrame)
	switch n := len(text); {
	case n < 126:
		dst = append(dst, mask|byte(n))
	case n < 1<<16:
		dst = binary.BigEndian.AppendUint16(append(dst, mask|126), uint16(n))
	default:
		dst = binary.BigEndian.AppendUint64(append(dst, mask|127), uint64(n))
	}
	if masked {
		dst = append(dst, 0, 0, 0, 0)
	}
	return append(dst, text...)
}
