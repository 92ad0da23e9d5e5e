package mongostore_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// standIn is as much of a replica set's primary as the transactional form
// needs, for where the tests have no server with transactions: it lets the real
// driver run them. It is no proof of what MongoDB does. Documents are kept in memory,
// and found by their _id alone. A transaction holds what it writes; another
// that wants to write it gets a write conflict, and writes without a transaction
// wait.
type standIn struct {
	t        testing.TB
	listener net.Listener
	all      sync.WaitGroup

	mu    sync.Mutex
	free  *sync.Cond // somebody has let go of documents
	conns map[net.Conn]bool
	docs  map[string]versioned // by namespace and _id
	txs   map[string]*standInTx
	held  map[string]*standInTx
	clock int64
}

type versioned struct {
	doc     bson.M
	version int64
}

type standInTx struct {
	key    string
	number int64
	since  int64 // of the clock: what was committed later conflicts
	begun  time.Time
	writes map[string]bson.M
	over   bool
}

// standInLifetime is transactionLifetimeLimitSeconds.
const standInLifetime = 500 * time.Millisecond

func newStandIn(t testing.TB) *standIn {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &standIn{t: t, listener: l, conns: map[net.Conn]bool{}, docs: map[string]versioned{}, txs: map[string]*standInTx{}, held: map[string]*standInTx{}}
	s.free = sync.NewCond(&s.mu)
	s.all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns[c] = true
			s.mu.Unlock()
			s.all.Go(func() { s.serve(c) })
		}
	})
	t.Cleanup(s.close)
	return s
}

func (s *standIn) close() {
	s.listener.Close()
	s.mu.Lock()
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.all.Wait()
}

func (s *standIn) uri() string {
	return "mongodb://" + s.listener.Addr().String() + "/?directConnection=true"
}

// serve answers one connection's messages: OP_MSG, and the OP_QUERY that a
// driver says hello with.
func (s *standIn) serve(c net.Conn) {
	defer c.Close()
	for {
		head := make([]byte, 16)
		if _, err := io.ReadFull(c, head); err != nil {
			return
		}
		body := make([]byte, binary.LittleEndian.Uint32(head)-16)
		if _, err := io.ReadFull(c, body); err != nil {
			return
		}
		var reply []byte
		opcode := uint32(2013)
		switch op := binary.LittleEndian.Uint32(head[12:]); op {
		case 2004:
			opcode = 1
			reply = append(make([]byte, 16), 1, 0, 0, 0) // flags, cursor, from, one document
			reply = append(reply, s.marshal(s.hello())...)
		case 2013:
			reply = append(make([]byte, 5), s.marshal(s.command(parse(body[4:])))...)
		default:
			s.t.Errorf("stand-in: opcode %d", op)
			return
		}
		out := binary.LittleEndian.AppendUint32(nil, uint32(16+len(reply)))
		out = binary.LittleEndian.AppendUint32(out, 0)
		out = append(out, head[4:8]...)
		out = binary.LittleEndian.AppendUint32(out, opcode)
		if _, err := c.Write(append(out, reply...)); err != nil {
			return
		}
	}
}

func (s *standIn) marshal(d any) []byte {
	raw, err := bson.Marshal(d)
	if err != nil {
		s.t.Errorf("stand-in: %v", err)
	}
	return raw
}

// parse returns a message's command and its documents.
func parse(sections []byte) (bson.Raw, []bson.Raw) {
	var command bson.Raw
	var docs []bson.Raw
	for len(sections) > 0 {
		kind, size := sections[0], binary.LittleEndian.Uint32(sections[1:])
		part := sections[1 : 1+size]
		sections = sections[1+size:]
		if kind == 0 {
			command = part
			continue
		}
		part = part[4:]
		for part[0] != 0 {
			part = part[1:]
		}
		for part = part[1:]; len(part) > 0; {
			size := binary.LittleEndian.Uint32(part)
			docs = append(docs, bson.Raw(part[:size]))
			part = part[size:]
		}
	}
	return command, docs
}

func (s *standIn) hello() bson.D {
	me := s.listener.Addr().String()
	return bson.D{
		{Key: "ismaster", Value: true}, {Key: "isWritablePrimary", Value: true}, {Key: "helloOk", Value: true},
		{Key: "setName", Value: "standin"}, {Key: "hosts", Value: bson.A{me}}, {Key: "me", Value: me}, {Key: "primary", Value: me},
		{Key: "maxBsonObjectSize", Value: 16 << 20}, {Key: "maxMessageSizeBytes", Value: 48_000_000}, {Key: "maxWriteBatchSize", Value: 100_000},
		{Key: "minWireVersion", Value: 0}, {Key: "maxWireVersion", Value: 21}, {Key: "logicalSessionTimeoutMinutes", Value: 30},
		{Key: "version", Value: "7.0.0"}, {Key: "ok", Value: 1},
	}
}

// standInFailure is a command's error.
type standInFailure struct {
	code  int
	label string
}

func (f *standInFailure) reply() bson.D {
	d := bson.D{{Key: "ok", Value: 0}, {Key: "code", Value: f.code}, {Key: "errmsg", Value: fmt.Sprint("stand-in: code ", f.code)}}
	if f.label != "" {
		d = append(d, bson.E{Key: "errorLabels", Value: bson.A{f.label}})
	}
	return d
}

func (s *standIn) command(raw bson.Raw, docs []bson.Raw) bson.D {
	first := raw.Index(0)
	name := first.Key()
	ok := bson.D{{Key: "ok", Value: 1}}
	switch name {
	case "hello", "isMaster", "ismaster", "buildInfo":
		return s.hello()
	case "ping", "createIndexes", "endSessions", "dropDatabase":
		return ok
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	tx, failure := s.tx(raw)
	if failure != nil {
		return failure.reply()
	}
	switch name {
	case "commitTransaction":
		s.end(tx, true)
		return ok
	case "abortTransaction":
		s.end(tx, false)
		return ok
	}
	coll := raw.Lookup("$db").StringValue() + "." + first.Value().StringValue() + "/"
	switch name {
	case "find":
		return s.find(tx, coll, raw)
	case "aggregate": // nothing but counting uses it, in forms that are not tested here
		return bson.D{{Key: "ok", Value: 1}, {Key: "cursor", Value: bson.D{{Key: "id", Value: int64(0)}, {Key: "ns", Value: "x.y"}, {Key: "firstBatch", Value: bson.A{}}}}}
	case "insert":
		return s.insert(tx, coll, docs)
	case "update":
		return s.update(tx, coll, docs)
	}
	s.t.Errorf("stand-in: command %s", name)
	return (&standInFailure{code: 59}).reply()
}

// tx returns the command's transaction, or nil.
func (s *standIn) tx(raw bson.Raw) (*standInTx, *standInFailure) {
	if v, err := raw.LookupErr("autocommit"); err != nil || v.Boolean() {
		return nil, nil
	}
	key, number := string(raw.Lookup("lsid").Value), raw.Lookup("txnNumber").Int64()
	if _, err := raw.LookupErr("startTransaction"); err == nil {
		s.clock++
		s.txs[key] = &standInTx{key: key, number: number, since: s.clock, begun: time.Now(), writes: map[string]bson.M{}}
	}
	tx := s.txs[key]
	if tx == nil || tx.number != number || tx.over {
		return nil, &standInFailure{251, "TransientTransactionError"}
	}
	return tx, nil
}

func (s *standIn) end(tx *standInTx, commit bool) {
	tx.over = true
	s.clock++
	for id, doc := range tx.writes {
		delete(s.held, id)
		if commit {
			s.docs[id] = versioned{doc, s.clock}
		}
	}
	s.free.Broadcast()
}

// read returns a document as the transaction sees it.
func (s *standIn) read(tx *standInTx, id string) bson.M {
	if tx != nil && tx.writes[id] != nil {
		return tx.writes[id]
	}
	return s.docs[id].doc
}

// take makes sure that the document may be written.
func (s *standIn) take(tx *standInTx, id string) *standInFailure {
	for other := s.held[id]; other != nil && other != tx; other = s.held[id] {
		switch {
		case time.Since(other.begun) > standInLifetime:
			s.end(other, false)
		case tx != nil:
			s.end(tx, false)
			return &standInFailure{112, "TransientTransactionError"}
		default:
			wake := time.AfterFunc(standInLifetime, s.free.Broadcast)
			s.free.Wait()
			wake.Stop()
		}
	}
	if tx != nil && s.docs[id].version > tx.since {
		s.end(tx, false)
		return &standInFailure{112, "TransientTransactionError"}
	}
	return nil
}

func (s *standIn) write(tx *standInTx, id string, doc bson.M) {
	if tx != nil {
		tx.writes[id], s.held[id] = doc, tx
		return
	}
	s.clock++
	s.docs[id] = versioned{doc, s.clock}
}

func (s *standIn) find(tx *standInTx, coll string, raw bson.Raw) bson.D {
	found := bson.A{}
	if doc := s.read(tx, coll+raw.Lookup("filter", "_id").StringValue()); doc != nil {
		found = append(found, doc)
	}
	return bson.D{{Key: "ok", Value: 1}, {Key: "cursor", Value: bson.D{{Key: "id", Value: int64(0)}, {Key: "ns", Value: "x.y"}, {Key: "firstBatch", Value: found}}}}
}

func (s *standIn) insert(tx *standInTx, coll string, docs []bson.Raw) bson.D {
	for _, raw := range docs {
		var doc bson.M
		if err := bson.Unmarshal(raw, &doc); err != nil {
			s.t.Errorf("stand-in: %v", err)
		}
		id := coll + doc["_id"].(string)
		if s.read(nil, id) == nil { // one that is there is a duplicate, whatever the snapshot
			if failure := s.take(tx, id); failure != nil {
				return failure.reply()
			}
		}
		if s.read(tx, id) != nil {
			if tx != nil {
				s.end(tx, false)
			}
			return bson.D{{Key: "ok", Value: 1}, {Key: "n", Value: 0}, {Key: "writeErrors", Value: bson.A{
				bson.D{{Key: "index", Value: 0}, {Key: "code", Value: 11000}, {Key: "errmsg", Value: "E11000 duplicate key error"}}}}}
		}
		s.write(tx, id, doc)
	}
	return bson.D{{Key: "ok", Value: 1}, {Key: "n", Value: len(docs)}}
}

func (s *standIn) update(tx *standInTx, coll string, docs []bson.Raw) bson.D {
	for _, raw := range docs {
		var u struct {
			Q struct {
				ID string `bson:"_id"`
			}
			U      map[string]bson.M
			Upsert bool
		}
		if err := bson.Unmarshal(raw, &u); err != nil {
			s.t.Errorf("stand-in: %v", err)
		}
		id := coll + u.Q.ID
		if failure := s.take(tx, id); failure != nil {
			return failure.reply()
		}
		old := s.read(tx, id)
		if old == nil && !u.Upsert {
			continue
		}
		doc := bson.M{"_id": u.Q.ID}
		for k, v := range old {
			doc[k] = v
		}
		for op, fields := range u.U {
			for k, v := range fields {
				doc[k] = s.apply(op, doc[k], v)
			}
		}
		s.write(tx, id, doc)
	}
	return bson.D{{Key: "ok", Value: 1}, {Key: "n", Value: len(docs)}, {Key: "nModified", Value: len(docs)}}
}

func (s *standIn) apply(op string, old, v any) any {
	number := func(v any) int64 {
		switch v := v.(type) {
		case int32:
			return int64(v)
		case int64:
			return v
		case bson.DateTime:
			return int64(v)
		}
		return 0
	}
	switch {
	case op == "$inc":
		return number(old) + number(v)
	case op == "$max" && number(old) > number(v):
		return old
	}
	return v
}
