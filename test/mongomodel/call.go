package mongomodel

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/test/mongomodel/query"
	"github.com/sluice-bus/sluice/test/mongomodel/store"
)

// Error is the error of a command.
type Error = query.Error

// spec says how a kind of command is executed.
type spec struct {
	run func(c *call) (bson.D, error)
	// fields are the command's own; any other is an error that names it.
	fields []string
	// sequence is the field whose documents may come beside the body.
	sequence string
	// writes says that only a primary executes it, and that it has a write concern.
	writes bool
	// reads says that a secondary executes it only if the read preference allows that, and that it
	// has a read concern.
	reads bool
	// transacts says that it may be part of a transaction.
	transacts bool
	// ends says that it ends a transaction.
	ends bool
	// monitoring says that drivers send it on their own; neither faults nor latencies apply.
	monitoring bool
}

// commonFields are those that every command may have.
var commonFields = []string{"$db", "lsid", "$clusterTime", "$readPreference", "maxTimeMS", "comment", "txnNumber", "autocommit",
	"startTransaction", "readConcern", "writeConcern", "apiVersion", "apiStrict", "apiDeprecationErrors", "stmtId", "stmtIds"}

// call is a command that is being executed.
type call struct {
	set        *Set
	conn       *conn
	member     *member
	spec       *spec
	err        error // that parsing the command has had
	name       string
	db         string
	collection string // where the command's own value names one
	body       bson.Raw
	documents  []bson.Raw
	halt       int

	until         time.Time // by maxTimeMS; zero: no end
	session       string    // lsid
	number        int64     // txnNumber, or 0
	inTransaction bool
	starts        bool // its first command
	level         string
	after         bson.Timestamp // afterClusterTime
	writeConcern  writeConcern
	secondaryOK   bool

	term    int64 // of the primary that executes it
	written int   // the position of its last write
	txn     *transaction
}

type writeConcern struct {
	members  int // or
	majority bool
	timeout  time.Duration
}

func (c *call) ns() string { return c.db + "." + c.collection }

func (c *call) request() Request {
	return Request{From: c.conn.from, Member: c.member.index, Primary: c.member.primary, Command: c.name, Database: c.db,
		Collection: c.collection, Body: c.body, Documents: c.documents}
}

func unknown(format string, args ...any) *Error {
	return &Error{Code: 9, CodeName: "FailedToParse", Message: fmt.Sprintf(format, args...) + " is not known to the model"}
}

func bad(format string, args ...any) *Error {
	return &Error{Code: 9, CodeName: "FailedToParse", Message: fmt.Sprintf(format, args...)}
}

// newCall parses a command.
func newCall(conn *conn, msg *message) *call {
	c := &call{set: conn.set, conn: conn, member: conn.member, body: msg.body}
	c.err = c.parse(msg)
	return c
}

func (c *call) parse(msg *message) error {
	first, err := msg.body.IndexErr(0)
	if err != nil {
		return bad("an empty command")
	}
	c.name = first.Key()
	c.db, _ = msg.body.Lookup("$db").StringValueOK()
	if c.spec = commands[c.name]; c.spec == nil {
		return &Error{Code: 59, CodeName: "CommandNotFound", Message: fmt.Sprintf("no such command: '%s': it is not known to the model", c.name)}
	}
	if name, ok := first.Value().StringValueOK(); ok {
		c.collection = name
	}
	if c.name == "getMore" {
		c.collection, _ = msg.body.Lookup("collection").StringValueOK()
	}
	for name, docs := range msg.sequences {
		if name != c.spec.sequence {
			return unknown("the document sequence %s of %s", name, c.name)
		}
		c.documents = docs
	}
	for k, v := range query.Fields(msg.body) {
		if name := string(k); name != c.name {
			if err := c.field(name, v); err != nil {
				return err
			}
		}
	}
	if c.writeConcern == (writeConcern{}) {
		c.writeConcern = writeConcern{majority: c.set.opts.Version != "4.4", members: 1}
	}
	return nil
}

func (c *call) field(name string, v bson.RawValue) error {
	switch name {
	case "maxTimeMS":
		ms, ok := v.AsInt64OK()
		if !ok || ms < 0 {
			return bad("maxTimeMS is %s", v)
		}
		if ms > 0 && c.name != "getMore" { // there it is how long to wait for data
			c.until = time.Now().Add(time.Duration(ms) * time.Millisecond)
		}
	case "lsid":
		id := v.Document().Lookup("id")
		c.session = string(id.Value)
	case "txnNumber":
		c.number, _ = v.AsInt64OK()
	case "autocommit":
		c.inTransaction = true
	case "startTransaction":
		c.starts = true
	case "readConcern":
		return c.parseReadConcern(v.Document())
	case "writeConcern":
		return c.parseWriteConcern(v.Document())
	case "$readPreference":
		mode, _ := v.Document().Lookup("mode").StringValueOK()
		c.secondaryOK = mode != "" && mode != "primary"
	case "$clusterTime":
		if t, i, ok := v.Document().Lookup("clusterTime").TimestampOK(); ok {
			c.hear(bson.Timestamp{T: t, I: i})
		}
	case c.spec.sequence:
		values, err := v.Array().Values()
		if err != nil {
			return err
		}
		for _, v := range values {
			doc, ok := v.DocumentOK()
			if !ok {
				return &Error{Code: 14, CodeName: "TypeMismatch", Message: fmt.Sprintf("%s.%s has something else than documents", c.name, name)}
			}
			c.documents = append(c.documents, doc)
		}
	default:
		if !slices.Contains(c.spec.fields, name) && !slices.Contains(commonFields, name) {
			return unknown("the option %s of %s", name, c.name)
		}
	}
	return nil
}

// hear takes in a cluster time that a client has got from another member.
func (c *call) hear(at bson.Timestamp) {
	c.set.mu.Lock()
	defer c.set.mu.Unlock()
	if c.member.clock.Before(at) {
		c.member.clock = at
	}
}

func (c *call) parseReadConcern(doc bson.Raw) error {
	for k, v := range query.Fields(doc) {
		switch string(k) {
		case "level":
			c.level = v.StringValue()
			if !slices.Contains([]string{"local", "available", "majority", "snapshot"}, c.level) {
				return unknown("the read concern %s", c.level)
			}
		case "afterClusterTime":
			c.after.T, c.after.I, _ = v.TimestampOK()
		case "provenance":
		default:
			return unknown("the read concern's %s", k)
		}
	}
	return nil
}

func (c *call) parseWriteConcern(doc bson.Raw) error {
	wc := writeConcern{members: 1}
	for k, v := range query.Fields(doc) {
		switch string(k) {
		case "w":
			if name, ok := v.StringValueOK(); ok {
				if name != "majority" {
					return &Error{Code: 79, CodeName: "UnknownReplWriteConcern",
						Message: fmt.Sprintf("No write concern mode named '%s' found in replica set configuration", name)}
				}
				wc.majority = true
				continue
			}
			w, ok := v.AsInt64OK()
			if !ok || w < 0 || w > 50 {
				return bad("w is %s", v)
			}
			wc.members = int(w)
		case "wtimeout":
			ms, _ := v.AsInt64OK()
			wc.timeout = time.Duration(ms) * time.Millisecond
		case "j", "fsync", "provenance": // all that is acknowledged is on disk
		default:
			return unknown("the write concern's %s", k)
		}
	}
	c.writeConcern = wc
	return nil
}

// errGone says that the client gets no answer: the member has ended, or its work was halted.
var errGone = errors.New("no answer")

// execute executes the command; nil says that it has no answer.
func (c *call) execute() bson.Raw {
	s := c.set
	s.mu.Lock()
	slow := c.member.slow
	s.mu.Unlock()
	if c.spec != nil && !c.spec.monitoring {
		switch {
		case c.spec.writes:
			slow += s.opts.Latencies.Write
		case c.spec.reads:
			slow += s.opts.Latencies.Read
		}
		if !s.sleep(slow) {
			return nil
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.member.down || s.closed {
		return nil
	}
	reply, err := c.run()
	if errors.Is(err, errGone) || c.member.down || s.closed {
		s.record(c, "no answer")
		return nil
	}
	if reply == nil {
		reply = bson.D{}
	}
	outcome := "ok"
	if err != nil {
		e := c.errorOf(err)
		outcome = e.Error()
		reply = append(reply, bson.E{Key: "ok", Value: 0.0}, bson.E{Key: "errmsg", Value: e.Message},
			bson.E{Key: "code", Value: e.Code}, bson.E{Key: "codeName", Value: e.CodeName})
		reply = append(reply, e.Info...)
		if labels := c.labels(e); len(labels) > 0 {
			reply = append(reply, bson.E{Key: "errorLabels", Value: labels})
		}
	} else {
		for _, e := range reply {
			if e.Key == "writeErrors" || e.Key == "writeConcernError" {
				outcome = e.Key
			}
		}
		reply = append(reply, bson.E{Key: "ok", Value: 1.0})
	}
	s.record(c, outcome)
	m := c.member
	reply = append(reply,
		bson.E{Key: "$clusterTime", Value: bson.D{{Key: "clusterTime", Value: m.clock}, {Key: "signature", Value: unsigned}}},
		bson.E{Key: "operationTime", Value: c.operationTime()})
	raw, err := bson.Marshal(reply)
	if err != nil {
		panic(fmt.Sprintf("mongomodel: the answer to %s: %v", c.name, err))
	}
	return raw
}

// unsigned is the signature of cluster times without authentication.
var unsigned = bson.D{{Key: "hash", Value: bson.Binary{Data: make([]byte, 20)}}, {Key: "keyId", Value: int64(0)}}

// operationTime is the time that a causally consistent session reads after.
func (c *call) operationTime() bson.Timestamp {
	m := c.member
	switch {
	case c.written > 0 && c.written <= m.last():
		return m.time(c.written)
	case c.level == "majority" || c.level == "snapshot":
		return m.time(m.committed)
	}
	return m.time(m.last())
}

func (c *call) errorOf(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: 9, CodeName: "FailedToParse", Message: err.Error()}
}

// run makes the checks of all commands, and executes this one. The lock is held.
func (c *call) run() (bson.D, error) {
	if c.err != nil {
		return nil, c.err
	}
	m := c.member
	switch {
	case c.spec.writes && !m.primary:
		return nil, notPrimary()
	case c.spec.reads && !m.primary && (!c.secondaryOK || c.inTransaction):
		if c.inTransaction {
			return nil, notPrimary()
		}
		return nil, &Error{Code: 13435, CodeName: "NotPrimaryNoSecondaryOk", Message: "not primary and secondaryOk=false"}
	case c.inTransaction && !c.spec.transacts:
		return nil, &Error{Code: 263, CodeName: "OperationNotSupportedInTransaction",
			Message: "Cannot run '" + c.name + "' in a multi-document transaction."}
	}
	c.term = m.term
	if c.inTransaction && !c.spec.ends {
		return c.runInTransaction()
	}
	if c.number != 0 && c.spec.writes {
		if err := c.checkNumber(); err != nil {
			return nil, err
		}
	}
	reply, err := c.spec.run(c)
	if c.spec.writes && !errors.Is(err, errGone) { // also of a write that failed
		if wce := c.waitForWrites(); wce != nil && (err == nil || c.stillPrimary()) {
			reply = append(reply, bson.E{Key: "writeConcernError", Value: document(wce)})
			if (c.number != 0 || c.spec.ends) && retryable(wce.Code) && err == nil {
				reply = append(reply, bson.E{Key: "errorLabels", Value: []string{labelRetryable}})
			}
		}
	}
	if c.member.down {
		return nil, errGone
	}
	return reply, err
}

func notPrimary() *Error {
	return &Error{Code: 10107, CodeName: "NotWritablePrimary", Message: "not primary"}
}

// interrupted ends a write that waits on a member that is no longer the primary.
func interrupted() *Error {
	return &Error{Code: 11602, CodeName: "InterruptedDueToReplStateChange", Message: "operation was interrupted"}
}

func timedOut() *Error {
	return &Error{Code: 50, CodeName: "MaxTimeMSExpired", Message: "operation exceeded time limit"}
}

const (
	labelRetryable = "RetryableWriteError"
	labelTransient = "TransientTransactionError"
)

func retryable(code int32) bool {
	return slices.Contains([]int32{6, 7, 89, 91, 134, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436}, code)
}

// labels are the labels of an error, by which the driver decides whether to retry.
func (c *call) labels(e *Error) []string {
	ends := c.spec != nil && c.spec.ends
	switch {
	case c.inTransaction && !ends && (retryable(e.Code) || slices.Contains([]int32{24, 112, 246, 251}, e.Code)):
		return []string{labelTransient}
	case c.inTransaction && ends && e.Code == 251:
		return []string{labelTransient}
	case (c.number != 0 || ends) && retryable(e.Code):
		return []string{labelRetryable}
	}
	return nil
}

// stillPrimary tells whether this is the primary that the command began on.
func (c *call) stillPrimary() bool {
	return c.member.primary && c.member.term == c.term && !c.member.down
}

// waitForWrites waits until the members that the write concern names have the command's writes; if
// it has written nothing, it waits for the newest write of all.
func (c *call) waitForWrites() *Error {
	m, wc := c.member, c.writeConcern
	at := c.written
	if at == 0 {
		at = m.last()
	}
	if !wc.majority && wc.members <= 1 {
		return nil
	}
	if wc.majority {
		c.set.cost.Majority++
	}
	if wc.members > len(c.set.members) {
		return &Error{Code: 100, CodeName: "UnsatisfiableWriteConcern", Message: "Not enough data-bearing nodes"}
	}
	until, late := c.until, timedOut()
	if wc.timeout > 0 {
		if t := time.Now().Add(wc.timeout); until.IsZero() || t.Before(until) {
			until, late = t, &Error{Code: 64, CodeName: "WriteConcernTimeout", Message: "waiting for replication timed out",
				Info: bson.D{{Key: "errInfo", Value: bson.D{{Key: "wtimeout", Value: true}}}}}
		}
	}
	done := func() bool {
		if wc.majority {
			return m.committed >= at
		}
		n := 0
		for _, p := range m.progress {
			if p >= at {
				n++
			}
		}
		return n >= wc.members
	}
	c.set.wait(until, func() bool { return !c.stillPrimary() || done() })
	switch {
	case !c.stillPrimary():
		return &Error{Code: 189, CodeName: "PrimarySteppedDown", Message: "Primary stepped down while waiting for replication"}
	case !done():
		return late
	}
	return nil
}

// document is an error of the write concern in an answer.
func document(e *Error) bson.D {
	return append(bson.D{{Key: "code", Value: e.Code}, {Key: "codeName", Value: e.CodeName}, {Key: "errmsg", Value: e.Message}}, e.Info...)
}

// view is the data that the command reads, once the data is as new as the command's session
// requires.
func (c *call) view() (*store.Store, error) {
	if c.txn != nil {
		return c.txn.view, nil
	}
	m := c.member
	majority := c.level == "majority" || c.level == "snapshot"
	if m.clock.Before(c.after) {
		return nil, &Error{Code: 2, CodeName: "BadValue", Message: "readConcern afterClusterTime is newer than the cluster time"}
	}
	seen := func() bool {
		at := m.last()
		if majority {
			at = m.committed
		}
		return !m.time(at).Before(c.after)
	}
	if !seen() {
		// The time may be of another shard or of a lost write, so the primary has to write
		// something newer.
		if p := c.set.primaryOf(m); p != nil && p.time(p.last()).Before(c.after) {
			p.clock = m.clock
			c.set.note(p)
		}
		if !c.set.wait(c.until, func() bool { return !m.conns[c.conn] || seen() }) {
			return nil, timedOut()
		}
		if !m.conns[c.conn] {
			return nil, errGone
		}
	}
	if majority {
		return m.majority(), nil
	}
	return m.data(), nil
}
