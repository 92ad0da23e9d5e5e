package mongomodel

import (
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/test/mongomodel/query"
	"github.com/sluice-bus/sluice/test/mongomodel/store"
)

// commands are all that the model knows.
var commands map[string]*spec

func init() {
	hello := &spec{run: runHello, monitoring: true, fields: []string{"helloOk", "client", "compression", "topologyVersion", "maxAwaitTimeMS",
		"loadBalanced", "saslSupportedMechs", "speculativeAuthenticate", "backpressure"}}
	writes := func(run func(*call) (bson.D, error), fields ...string) *spec {
		return &spec{run: run, writes: true, fields: fields}
	}
	ddl := func(run func(*call, *store.Store) ([]store.Entry, bson.D, error), fields ...string) *spec {
		return writes(func(c *call) (bson.D, error) {
			return c.write(0, func(s *store.Store) ([]store.Entry, bson.D, error) { return run(c, s) })
		}, fields...)
	}
	reads := func(run func(*call) (bson.D, error), fields ...string) *spec {
		return &spec{run: run, reads: true, fields: fields}
	}
	transacts := func(s *spec, sequence string) *spec {
		s.transacts, s.sequence = true, sequence
		return s
	}
	free := func(run func(*call) (bson.D, error), fields ...string) *spec { return &spec{run: run, fields: fields} }
	commands = map[string]*spec{
		"hello": hello, "isMaster": hello, "ismaster": hello,
		"ping":            free(runNothing),
		"buildInfo":       free(runBuildInfo),
		"endSessions":     free(runEndSessions),
		"killCursors":     transacts(free(runKillCursors, "cursors"), ""),
		"replSetStepDown": free(runStepDown, "secondaryCatchUpPeriodSecs", "force"),

		"insert": transacts(writes(runInsert, "ordered", "bypassDocumentValidation"), "documents"),
		"update": transacts(writes(runUpdate, "ordered", "bypassDocumentValidation"), "updates"),
		"delete": transacts(writes(runDelete, "ordered"), "deletes"),
		"findAndModify": transacts(writes(runFindAndModify, "query", "sort", "update", "remove", "new", "fields", "upsert", "hint",
			"bypassDocumentValidation"), ""),
		"commitTransaction": {run: runCommit, writes: true, transacts: true, ends: true, fields: []string{"recoveryToken"}},
		"abortTransaction":  {run: runAbort, writes: true, transacts: true, ends: true, fields: []string{"recoveryToken"}},
		"create":            ddl(runCreate, "capped", "size", "max"),
		"drop":              ddl(runDrop),
		"renameCollection":  ddl(runRenameCollection, "to", "dropTarget"),
		"dropDatabase":      ddl(runDropDatabase),
		"createIndexes":     ddl(runCreateIndexes, "indexes", "commitQuorum"),
		"dropIndexes":       ddl(runDropIndexes, "index"),

		"find": transacts(reads(runFind, "filter", "sort", "projection", "hint", "skip", "limit", "batchSize", "singleBatch",
			"tailable", "awaitData", "noCursorTimeout", "allowDiskUse"), ""),
		"getMore":         transacts(free(runGetMore, "collection", "batchSize"), ""),
		"aggregate":       transacts(reads(runAggregate, "pipeline", "cursor", "hint", "allowDiskUse"), ""),
		"count":           reads(runCount),
		"listIndexes":     reads(runListIndexes, "cursor"),
		"listCollections": reads(runListCollections, "filter", "cursor", "nameOnly", "authorizedCollections"),
		"listDatabases":   reads(runListDatabases, "filter", "nameOnly", "authorizedDatabases"),
	}
}

// wireVersions are the wire versions that hello names, by the server's version.
var wireVersions = map[string]int32{"4.4": 9, "8.0": 25}

func runNothing(*call) (bson.D, error) { return nil, nil }

func runHello(c *call) (bson.D, error) {
	s, m := c.set, c.member
	if await, ok := c.body.Lookup("maxAwaitTimeMS").AsInt64OK(); ok {
		seen, _ := c.body.Lookup("topologyVersion", "counter").AsInt64OK()
		wait := time.Duration(await) * time.Millisecond
		if most := s.opts.HelloWait; most > 0 {
			wait = min(wait, most)
		}
		s.wait(time.Now().Add(wait), func() bool { return m.topology != seen || !m.conns[c.conn] })
		if m.down || !m.conns[c.conn] {
			return nil, errGone
		}
	}
	var hosts []string
	for _, o := range s.members {
		hosts = append(hosts, o.addr)
	}
	role := "isWritablePrimary"
	if c.name != "hello" {
		role = "ismaster"
	}
	out := bson.D{{Key: "helloOk", Value: true}, {Key: role, Value: m.primary}, {Key: "secondary", Value: !m.primary},
		{Key: "setName", Value: Name}, {Key: "setVersion", Value: int32(1)}, {Key: "hosts", Value: hosts}, {Key: "me", Value: m.addr}}
	if p := s.primaryOf(m); p != nil {
		out = append(out, bson.E{Key: "primary", Value: p.addr})
	}
	if m.primary {
		id := bson.ObjectID{0x7f, 0xff, 0xff, 0xff}
		for i := range 8 {
			id[11-i] = byte(m.term >> (8 * i))
		}
		out = append(out, bson.E{Key: "electionId", Value: id})
	}
	if !s.opts.Polling {
		out = append(out, bson.E{Key: "topologyVersion",
			Value: bson.D{{Key: "processId", Value: s.process}, {Key: "counter", Value: m.topology}}})
	}
	wall := s.began
	if m.last() > m.base {
		wall = m.entry(m.last()).wall
	}
	return c.introduce(append(out, bson.E{Key: "lastWrite", Value: bson.D{{Key: "opTime",
		Value: bson.D{{Key: "ts", Value: m.time(m.last())}, {Key: "t", Value: m.term}}},
		{Key: "lastWriteDate", Value: bson.NewDateTimeFromTime(wall)}}},
		bson.E{Key: "maxBsonObjectSize", Value: int32(maxDocumentBytes)}, bson.E{Key: "maxMessageSizeBytes", Value: int32(maxMessageBytes)},
		bson.E{Key: "maxWriteBatchSize", Value: int32(maxWriteBatch)}, bson.E{Key: "localTime", Value: bson.NewDateTimeFromTime(time.Now())},
		bson.E{Key: "logicalSessionTimeoutMinutes", Value: int32(30)}, bson.E{Key: "connectionId", Value: int32(c.conn.id)},
		bson.E{Key: "minWireVersion", Value: int32(0)}, bson.E{Key: "maxWireVersion", Value: wireVersions[s.opts.Version]},
		bson.E{Key: "readOnly", Value: false})), nil
}

func (c *call) introduce(answer bson.D) bson.D {
	if change := c.set.opts.Introduce; change != nil {
		return change(c.name, answer)
	}
	return answer
}

func runBuildInfo(c *call) (bson.D, error) {
	return c.introduce(bson.D{{Key: "version", Value: c.set.opts.Version + ".0"},
		{Key: "maxBsonObjectSize", Value: int32(maxDocumentBytes)}}), nil
}

func runStepDown(c *call) (bson.D, error) {
	if !c.member.primary {
		return nil, notPrimary()
	}
	seconds, ok := c.body.Index(0).Value().AsInt64OK()
	if !ok || seconds < 1 {
		return nil, bad("stepdown period must be a positive number")
	}
	c.set.stepDown(c.member, time.Duration(seconds)*time.Second)
	return nil, nil
}

func runCreate(c *call, s *store.Store) ([]store.Entry, bson.D, error) {
	options := bson.D{}
	for _, name := range c.spec.fields {
		if v, err := c.body.LookupErr(name); err == nil {
			options = append(options, bson.E{Key: name, Value: v})
		}
	}
	raw, err := bson.Marshal(options)
	if err != nil {
		return nil, nil, err
	}
	entries, err := s.Create(c.ns(), raw)
	return entries, nil, err
}

func runDrop(c *call, s *store.Store) ([]store.Entry, bson.D, error) {
	entries, err := s.Drop(c.ns())
	return entries, bson.D{{Key: "ns", Value: c.ns()}}, err
}

func runRenameCollection(c *call, s *store.Store) ([]store.Entry, bson.D, error) {
	from, _ := c.body.Index(0).Value().StringValueOK()
	to, _ := c.body.Lookup("to").StringValueOK()
	if c.db != "admin" {
		return nil, nil, &Error{Code: 13, CodeName: "Unauthorized", Message: "renameCollection may only be run against the admin database."}
	}
	entries, err := s.Rename(from, to, c.flag("dropTarget"))
	return entries, nil, err
}

func runDropDatabase(c *call, s *store.Store) ([]store.Entry, bson.D, error) {
	entries, err := s.DropDatabase(c.db)
	return entries, bson.D{{Key: "dropped", Value: c.db}}, err
}

func runCreateIndexes(c *call, s *store.Store) ([]store.Entry, bson.D, error) {
	values, err := c.body.Lookup("indexes").Array().Values()
	if err != nil {
		return nil, nil, err
	}
	var specs []bson.Raw
	for _, v := range values {
		specs = append(specs, v.Document())
	}
	entries, before, after, err := s.CreateIndexes(c.ns(), specs)
	out := bson.D{{Key: "numIndexesBefore", Value: int32(before)}, {Key: "numIndexesAfter", Value: int32(after)}}
	if before == after {
		out = append(out, bson.E{Key: "note", Value: "all indexes already exist"})
	}
	return entries, out, err
}

func runDropIndexes(c *call, s *store.Store) ([]store.Entry, bson.D, error) {
	entries, before, err := s.DropIndexes(c.ns(), c.body.Lookup("index"))
	return entries, bson.D{{Key: "nIndexesWas", Value: int32(before)}}, err
}

func runListIndexes(c *call) (bson.D, error) {
	view, err := c.view()
	if err != nil {
		return nil, err
	}
	docs, err := view.Indexes(c.ns())
	if err != nil {
		return nil, err
	}
	return c.listed(c.ns(), docs)
}

// matches returns the documents that the command's filter selects.
func (c *call) matches(docs []bson.Raw) ([]bson.Raw, error) {
	doc, _ := c.body.Lookup("filter").DocumentOK()
	filter, err := query.ParseFilter(doc)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(docs, func(d bson.Raw) bool { return !filter.Match(d) }), nil
}

func runListCollections(c *call) (bson.D, error) {
	view, err := c.view()
	if err != nil {
		return nil, err
	}
	var docs []bson.Raw
	for _, info := range view.Collections(c.db) {
		raw, err := bson.Marshal(bson.D{{Key: "name", Value: info.Name}, {Key: "type", Value: "collection"},
			{Key: "options", Value: info.Options},
			{Key: "info", Value: bson.D{{Key: "readOnly", Value: false}}},
			{Key: "idIndex", Value: bson.D{{Key: "v", Value: int32(2)}, {Key: "key", Value: bson.D{{Key: "_id", Value: int32(1)}}},
				{Key: "name", Value: "_id_"}}}})
		if err != nil {
			return nil, err
		}
		docs = append(docs, raw)
	}
	if docs, err = c.matches(docs); err != nil {
		return nil, err
	}
	return c.listed(c.db+".$cmd.listCollections", docs)
}

func runListDatabases(c *call) (bson.D, error) {
	view, err := c.view()
	if err != nil {
		return nil, err
	}
	var docs []bson.Raw
	for _, name := range view.Databases() {
		raw, err := bson.Marshal(bson.D{{Key: "name", Value: name}, {Key: "sizeOnDisk", Value: int64(4096)}, {Key: "empty", Value: false}})
		if err != nil {
			return nil, fmt.Errorf("database %s: %w", name, err)
		}
		docs = append(docs, raw)
	}
	docs, err = c.matches(docs)
	if docs == nil {
		docs = []bson.Raw{}
	}
	return bson.D{{Key: "databases", Value: docs}, {Key: "totalSize", Value: int64(4096 * len(docs))}}, err
}

// passTTL deletes the documents on the primary whose time in a TTL index is over, and sets the time
// of the next pass.
func (s *Set) passTTL() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	for _, m := range s.members {
		if !m.primary {
			continue
		}
		for _, due := range m.data().Expired(time.Now()) {
			claims, entries, _, err := m.tryWrite(func(st *store.Store) ([]store.Entry, bson.D, error) {
				if st.Guard != nil {
					if err := st.Guard(due); err != nil {
						return nil, nil, err
					}
				}
				return []store.Entry{due}, nil, st.Apply(due)
			})
			if err == nil { // a document that a transaction holds waits for the next pass
				s.append(m, &entry{ops: entries})
				m.wrote(claims)
			}
		}
	}
	s.ttl.Reset(s.opts.TTLInterval)
}
