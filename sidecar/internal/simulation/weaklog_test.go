package simulation

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// logWeaknesses are ways to weaken how events get into the log and out of it, beside those of
// weaknesses.
//
// The list leaves out mistakes that other parts make up for:
//   - Duplicates whose ids are looked up locally, or are taken for stored where they are not
//     visible yet: the server answers that a key is taken only once a majority has all that was
//     written before, and its own lookup follows.
//   - Voids that are passed over before they are read back: the answer that a seq is taken comes as
//     late, and from no older primary than the one that is read next. Voids that are written at w:
//     1: they are passed over once a majority has them.
//   - Holes that are voided at once, or after a time by the wall clock: a void holds against
//     whoever comes late, so it costs writers another reservation and nothing is passed over.
//   - Documents behind one whose seq is void that are inserted at their old seqs: what one request
//     reserved is voided as a whole. Duplicates in a batch that leave holes instead of voids:
//     readers void them, which takes time only.
//   - Events whose outcome is not known that are inserted again at new seqs: an id is stored once,
//     whichever insert comes first.
//   - Claims of lone writers that are made at w: 1. A lone writer whose claim was taken back stores
//     events right behind the last one, where others store theirs.
//   - Events above the head that are passed over without raising it: heads of majority topics do
//     not fall, and the order of w: 1 topics across sidecars may break.
//
// It also leaves out mistakes that schedules hardly reach: a head that is made from a local read or
// without cursors, as there are events without a head in logs of earlier versions only;
// reservations that count for longer than an hour, as their seqs stay taken for a day; and
// reservations at w: 1 for majority topics, whose seqs have to fall into another sidecar's hole
// (bubbletest, TestAReservationOfAReplacedPrimary).
var logWeaknesses = []weakness{
	{name: "another-settled", is: "what is settled is taken from a later answer than the events", answers: func(c *command, a *answered) {
		a.eachHead(func(head bson.D) {
			c.memory.each(head, func(p string, _, settled int64) { raiseIn(head, "settled", p, settled) })
		})
	}},
	{name: "no-voids", is: "a hole that has stood for long enough is passed over without a void", commands: func(c *command) {
		if c.isVoiding() {
			c.memory.voided(c.docs)
			c.name, c.sequence, c.docs = "ping", "", nil
			c.body = bson.D{{Key: "ping", Value: 1}, {Key: "$db", Value: get(c.body, "$db")}}
		}
	}, answers: func(c *command, a *answered) { c.fillIn(a, c.memory.isVoided) }},
	{name: "holes-are-gaps", is: "a gap above what is settled is taken for what was removed", answers: func(_ *command, a *answered) {
		a.eachHead(func(head bson.D) {
			heads, _ := get(head, "head").(bson.D)
			for _, e := range heads {
				raiseIn(head, "settled", e.Key, e.Value.(int64))
			}
		})
	}},
	{name: "unread-settled", is: "settled is raised to what was given out, whatever was read", commands: func(c *command) {
		c.eachMax("settled", func(p string, _ int64) int64 { return c.memory.head(c, p) })
	}, answers: learning},
	{name: "extents-to-head", is: "positions and extents go up to what was given out, whatever is missing",
		answers: func(c *command, a *answered) {
			if filter, _ := get(c.body, "filter").(bson.D); c.name == "find" && get(filter, "void") == nil {
				if fields, _ := get(c.body, "projection").(bson.D); get(fields, "void") != nil {
					c.fillIn(a, func(place) bool { return true })
				}
			}
		}},
	{name: "first-ahead", is: "first is raised above what was settled", commands: func(c *command) {
		c.eachMax("first", func(p string, first int64) int64 { return max(first, c.memory.head(c, p)+1) })
	}, answers: learning},
	{name: "unacknowledged-prefix", is: "what was inserted before a duplicate is not waited for", answers: func(c *command, a *answered) {
		if c.name == "insert" && get(a.body, "writeErrors") != nil {
			a.body = without(a.body, "writeConcernError")
		}
	}},
	{name: "unmet-concerns", is: "an insert counts whether or not its write concern was met", answers: func(c *command, a *answered) {
		if c.name == "insert" && c.collection == "events" {
			a.body = without(a.body, "writeConcernError")
		}
	}},
	{name: "short-voids", is: "voids are deleted as soon as they can be", commands: func(c *command) {
		if c.name == "insert" && c.collection == "events" {
			for _, doc := range c.docs {
				set(doc, "expireAt", bson.DateTime(1))
			}
		}
	}},
	{name: "short-stubs", obvious: true, is: "stubs are deleted as soon as they can be", commands: func(c *command) {
		if c.name == "update" && c.collection == "events" {
			for _, statement := range c.docs {
				change, _ := get(statement, "u").(bson.D)
				fields, _ := get(change, "$set").(bson.D)
				set(fields, "expireAt", bson.DateTime(1))
			}
		}
	}},
	{name: "unstopped", obvious: true, is: "the claim of a lone writer ends without voids that stop it", commands: func(c *command) {
		if c.isStopping() {
			c.name, c.sequence, c.docs = "ping", "", nil
			c.body = bson.D{{Key: "ping", Value: 1}, {Key: "$db", Value: get(c.body, "$db")}}
		}
	}, answers: learning},
	{name: "stopped-too-far", obvious: true, is: "the voids that stop a lone writer leave a seq free before them", commands: func(c *command) {
		if c.isStopping() {
			for _, doc := range c.docs {
				seq := number(get(doc, "seq")) + 1
				set(doc, "seq", seq)
				set(get(doc, "_id").(bson.D), "seq", seq)
			}
		}
	}, answers: learning},
	{name: "beside-the-claim", is: "seqs are reserved while there is a lone writer", commands: func(c *command) {
		if filter, _ := get(c.body, "query").(bson.D); c.name == "findAndModify" {
			set(c.body, "query", without(filter, "lone"))
		}
	}},
	{name: "void-is-stored", obvious: true, is: "an event whose seq is taken counts as stored", answers: func(c *command, a *answered) {
		failed, _ := get(a.body, "writeErrors").(bson.A)
		if c.name != "insert" || c.collection != "events" || get(c.body, "ordered") == false || len(failed) == 0 {
			return
		}
		if pattern, _ := get(failed[0].(bson.D), "keyPattern").(bson.D); get(pattern, "seq") != nil {
			a.body = without(a.body, "writeErrors")
		}
	}},
	{name: "hasty-tails", is: "what may vanish with a primary is announced before the log shows it", hasty: true},
}

// learning is for weaknesses that use only what memory learns from every answer.
func learning(*command, *answered) {}

// memory is what one process has learned from answers.
type memory struct {
	mu      sync.Mutex
	numbers map[[3]string]int64 // the highest of a head, by topic, field and partition
	voids   map[place]bool
}

// learn remembers the numbers of heads.
func (m *memory) learn(a *answered) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.numbers == nil {
		m.numbers, m.voids = map[[3]string]int64{}, map[place]bool{}
	}
	a.eachHead(func(head bson.D) {
		topic, _ := get(head, "topic").(string)
		for _, field := range []string{"head", "settled"} {
			numbers, _ := get(head, field).(bson.D)
			for _, e := range numbers {
				k := [3]string{topic, field, e.Key}
				n, _ := e.Value.(int64)
				m.numbers[k] = max(m.numbers[k], n)
			}
		}
	})
}

// each calls do with what is known of the partitions of a head.
func (m *memory) each(head bson.D, do func(p string, given, settled int64)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	topic, _ := get(head, "topic").(string)
	for k, n := range m.numbers {
		if k[0] == topic && k[1] == "head" {
			do(k[2], n, m.numbers[[3]string{topic, "settled", k[2]}])
		}
	}
}

// head is the highest known seq that was given out in a partition, of the topic whose head the
// command changes.
func (m *memory) head(c *command, p string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	filter, _ := get(c.docs[0], "q").(bson.D)
	topic, _ := get(filter, "topic").(string)
	return m.numbers[[3]string{topic, "head", p}]
}

func (m *memory) voided(docs []bson.D) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, doc := range docs {
		m.voids[placeOf(doc)] = true
	}
}

func (m *memory) isVoided(at place) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.voids[at]
}

func placeOf(doc bson.D) place {
	topic, _ := get(doc, "topic").(string)
	return place{part{topic, int(number(get(doc, "partition")))}, uint64(number(get(doc, "seq")))}
}

func number(v any) int64 {
	switch n := v.(type) {
	case int32:
		return int64(n)
	case int64:
		return n
	}
	return 0
}

// answered is the answer to a command.
type answered struct{ body bson.D }

// docs are the documents that it has, of a find.
func (a *answered) docs() (docs []bson.D) {
	cursor, _ := get(a.body, "cursor").(bson.D)
	batch, _ := get(cursor, "firstBatch").(bson.A)
	for _, doc := range batch {
		docs = append(docs, doc.(bson.D))
	}
	return docs
}

func (a *answered) setDocs(docs []bson.D) {
	cursor, _ := get(a.body, "cursor").(bson.D)
	batch := bson.A{}
	for _, doc := range docs {
		batch = append(batch, doc)
	}
	set(cursor, "firstBatch", batch)
}

// eachHead calls do with all heads in the answer.
func (a *answered) eachHead(do func(head bson.D)) {
	docs := a.docs()
	if value, ok := get(a.body, "value").(bson.D); ok {
		docs = append(docs, value)
	}
	for _, doc := range docs {
		if number(get(doc, "partition")) == -1 {
			do(doc)
		}
	}
}

// raiseIn raises a number of a head.
func raiseIn(head bson.D, field, p string, to int64) {
	numbers, _ := get(head, field).(bson.D)
	if get(numbers, p) == nil {
		numbers = append(numbers, bson.E{Key: p, Value: int64(0)})
		set(head, field, numbers)
	}
	set(numbers, p, max(number(get(numbers, p)), to))
}

// eachMax changes the numbers that updates raise to at least a value.
func (c *command) eachMax(field string, change func(p string, to int64) int64) {
	if c.name != "update" || c.collection != "events" {
		return
	}
	for _, statement := range c.docs {
		update, _ := get(statement, "u").(bson.D)
		numbers, _ := get(update, "$max").(bson.D)
		for i, e := range numbers {
			if p, of := cutField(e.Key, field); of {
				numbers[i].Value = change(p, number(e.Value))
			}
		}
	}
}

// cutField is the partition of a path to a number of a head.
func cutField(path, field string) (p string, of bool) {
	n := len(field) + 1
	if len(path) > n && path[:n] == field+"." {
		return path[n:], true
	}
	return "", false
}

// isVoiding reports whether the command is a reader's that fills holes.
func (c *command) isVoiding() bool {
	return c.name == "insert" && c.collection == "events" && get(c.body, "ordered") == false && len(c.docs) > 0 &&
		get(c.docs[0], "void") == true
}

// isStopping reports whether the command puts voids above the head, as one does that ends the claim of a
// lone writer.
func (c *command) isStopping() bool {
	if !c.isVoiding() {
		return false
	}
	first := placeOf(c.docs[0])
	c.memory.mu.Lock()
	defer c.memory.mu.Unlock()
	return int64(first.seq) > c.memory.numbers[[3]string{first.topic, "head", strconv.Itoa(first.partition)}]
}

// fillIn has the answer to a read of events show voids where nothing is.
func (c *command) fillIn(a *answered, isVoid func(place) bool) {
	filter, _ := get(c.body, "filter").(bson.D)
	bounds, _ := get(filter, "seq").(bson.D)
	from, docs := number(get(bounds, "$gte")), a.docs()
	if c.name != "find" || c.collection != "events" || from == 0 || get(filter, "gone") != nil || get(filter, "void") != nil {
		return
	}
	at := part{partition: int(number(get(filter, "partition")))}
	at.topic, _ = get(filter, "topic").(string)
	last, limit := number(get(bounds, "$lte")), number(get(c.body, "limit"))
	if in, _ := get(filter, "partition").(bson.D); in != nil { // with the head
		at.partition = int(number(get(in, "$in").(bson.A)[1]))
		if len(docs) == 0 {
			return
		}
		heads, _ := get(docs[0], "head").(bson.D)
		last = number(get(heads, strconv.Itoa(at.partition)))
	}
	if limit > 0 && int64(len(docs)) >= limit {
		last = number(get(docs[len(docs)-1], "seq"))
	}
	if last >= math.MaxInt64-1 { // a query for what a lone writer has stored
		c.memory.mu.Lock()
		last = c.memory.numbers[[3]string{at.topic, "head", strconv.Itoa(at.partition)}]
		c.memory.mu.Unlock()
	}
	there := map[uint64]bool{}
	for _, doc := range docs {
		there[uint64(number(get(doc, "seq")))] = true
	}
	for seq := uint64(from); seq <= uint64(last); seq++ {
		if !there[seq] && isVoid(place{at, seq}) {
			docs = append(docs, bson.D{
				{Key: "topic", Value: at.topic}, {Key: "partition", Value: at.partition}, {Key: "seq", Value: int64(seq)},
				{Key: "gone", Value: true}, {Key: "void", Value: true},
			})
		}
	}
	slices.SortStableFunc(docs, func(a, b bson.D) int {
		return cmp.Or(cmp.Compare(min(number(get(a, "partition")), 0), min(number(get(b, "partition")), 0)),
			cmp.Compare(number(get(a, "seq")), number(get(b, "seq"))))
	})
	a.setDocs(docs)
}
