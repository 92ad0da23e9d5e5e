package simulation

import (
	"encoding/binary"
	"io"
	"net"
	"slices"
	"strings"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// command is a command on its way to the replica set, which a weakness changes. A value stands for
// the same in the body and in a sequence of documents beside it.
type command struct {
	name, collection string
	body             bson.D
	sequence         string // the field that docs stand for; "": there are none
	docs             []bson.D
	memory           *memory // of the process that sends it
}

// tampering changes the commands of a process, and their answers.
type tampering struct {
	commands func(*command)            // nil: they stay as they are
	answers  func(*command, *answered) // nil: they stay as they are
	memory   *memory
}

// tamperingConn is a connection whose commands and answers a tampering changes.
type tamperingConn struct {
	net.Conn
	*tampering
	mu   sync.Mutex
	sent map[uint32]*command // by the number of its message, until it is answered
	part []byte              // of an answer that has not arrived whole
	rest []byte              // of an answer that is read piece by piece
}

// Write implements net.Conn. The driver writes one message at a time.
func (c *tamperingConn) Write(b []byte) (int, error) {
	message, sent := c.command(b)
	if sent != nil && c.answers != nil {
		c.mu.Lock()
		c.sent[binary.LittleEndian.Uint32(b[4:])] = sent
		c.mu.Unlock()
	}
	if _, err := c.Conn.Write(message); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Read implements net.Conn.
func (c *tamperingConn) Read(b []byte) (int, error) {
	if c.answers == nil {
		return c.Conn.Read(b)
	}
	if len(c.rest) == 0 {
		if err := c.receive(); err != nil {
			return 0, err
		}
		c.rest = c.answer(c.part)
		c.part = nil
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// receive reads the next message. A deadline may pass in the middle of it: the driver reads the rest
// later, from where it was.
func (c *tamperingConn) receive() error {
	for {
		at, size := len(c.part), headerBytes
		if at >= headerBytes {
			size = int(binary.LittleEndian.Uint32(c.part))
		}
		if at == size {
			return nil
		}
		c.part = slices.Grow(c.part, size-at)[:size]
		n, err := io.ReadFull(c.Conn, c.part[at:])
		if c.part = c.part[:at+n]; err != nil {
			return err
		}
	}
}

// answer returns a message with the changed answer.
func (c *tamperingConn) answer(b []byte) []byte {
	number := binary.LittleEndian.Uint32(b[8:])
	c.mu.Lock()
	sent := c.sent[number]
	delete(c.sent, number)
	c.mu.Unlock()
	if sent == nil || binary.LittleEndian.Uint32(b[12:]) != opMsg || b[headerBytes+4] != 0 {
		return b
	}
	a := &answered{}
	mustUnmarshal(b[headerBytes+5:headerBytes+5+binary.LittleEndian.Uint32(b[headerBytes+5:])], &a.body)
	c.memory.learn(a)
	c.answers(sent, a)
	out := append(append([]byte(nil), b[:headerBytes+5]...), mustMarshal(a.body)...)
	binary.LittleEndian.PutUint32(out, uint32(len(out)))
	return out
}

const (
	opMsg       = 2013
	headerBytes = 16
)

// command returns an OP_MSG message with its command changed, and the command. Any other message
// stays as it is.
func (t *tampering) command(b []byte) ([]byte, *command) {
	if len(b) < headerBytes+5 || binary.LittleEndian.Uint32(b[12:]) != opMsg {
		return b, nil
	}
	c := &command{memory: t.memory}
	for rest := b[headerBytes+4:]; len(rest) > 0; {
		kind, size := rest[0], int(binary.LittleEndian.Uint32(rest[1:]))
		section := rest[1 : 1+size]
		rest = rest[1+size:]
		if kind == 0 {
			mustUnmarshal(section, &c.body)
			continue
		}
		section = section[4:]
		for i, x := range section {
			if x == 0 {
				c.sequence, section = string(section[:i]), section[i+1:]
				break
			}
		}
		for len(section) > 0 {
			size := int(binary.LittleEndian.Uint32(section))
			var doc bson.D
			mustUnmarshal(section[:size], &doc)
			c.docs, section = append(c.docs, doc), section[size:]
		}
	}
	if len(c.body) == 0 {
		return b, nil
	}
	c.name = c.body[0].Key
	c.collection, _ = c.body[0].Value.(string)
	if t.commands != nil {
		t.commands(c)
	}
	out := append([]byte(nil), b[:headerBytes+4]...)
	out = append(append(out, 0), mustMarshal(c.body)...)
	if c.sequence != "" {
		section := append([]byte(c.sequence), 0)
		for _, doc := range c.docs {
			section = append(section, mustMarshal(doc)...)
		}
		out = append(out, 1)
		out = binary.LittleEndian.AppendUint32(out, uint32(len(section)+4))
		out = append(out, section...)
	}
	binary.LittleEndian.PutUint32(out, uint32(len(out)))
	return out, c
}

func mustMarshal(d bson.D) []byte {
	b, err := bson.Marshal(d)
	if err != nil {
		panic(err) // it was a document before
	}
	return b
}

func mustUnmarshal(b []byte, d *bson.D) {
	if err := bson.Unmarshal(b, d); err != nil {
		panic(err) // the driver has made it
	}
}

// refusedSuffix ends the ids of events that the store does not take, as if it had a validator
// against them.
const refusedSuffix = "-refused"

// refuse nests documents of such events deeper than a replica set takes them.
func refuse(c *command) {
	if c.name != "insert" || c.collection != "events" {
		return
	}
	var deep any
	for range 300 {
		deep = bson.D{{Key: "in", Value: deep}}
	}
	for i, doc := range c.docs {
		topic, _ := get(doc, "topic").(string)
		_, dead := deadLettersOf(topic)
		if id, _ := get(doc, "_id").(string); !dead && strings.HasSuffix(id, refusedSuffix) {
			c.docs[i] = append(doc, bson.E{Key: "deep", Value: deep})
		}
	}
}

// set changes a field of a document that has it.
func set(d bson.D, key string, value any) {
	for i := range d {
		if d[i].Key == key {
			d[i].Value = value
		}
	}
}

// get is a field of a document; nil: it has none.
func get(d bson.D, key string) any {
	for _, e := range d {
		if e.Key == key {
			return e.Value
		}
	}
	return nil
}

// without is a document that lacks a field.
func without(d bson.D, key string) bson.D {
	out := bson.D{} // nil would be null
	for _, e := range d {
		if e.Key != key {
			out = append(out, e)
		}
	}
	return out
}
