package mongomodel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/wiremessage"
)

// The features that hello announces to the driver, and the bounds of a message.
const (
	maxDocumentBytes = 16 << 20
	maxMessageBytes  = 48_000_000
	maxWriteBatch    = 100_000
)

const headerBytes = 16

// opQuery is the opcode of a driver's first hello, long deprecated for everything else.
const opQuery wiremessage.OpCode = 2004

// message is a command as it came, or an answer to one.
type message struct {
	id     int32
	legacy bool // the handshake: OP_QUERY, which OP_REPLY answers
	// silent says that the sender wants no answer.
	silent bool
	// exhaust says that the sender takes further answers without asking for them.
	exhaust bool
	body    bson.Raw
	// sequences are the documents that came beside the body, by the field they stand for.
	sequences map[string][]bson.Raw
}

var errMalformed = errors.New("malformed message")

// readMessage reads one message; io.EOF says that the other side is gone.
func readMessage(r io.Reader) (*message, error) {
	var header [headerBytes]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	length, id, _, op, _, _ := wiremessage.ReadHeader(header[:])
	if length < headerBytes || length > maxMessageBytes {
		return nil, fmt.Errorf("a message of %d bytes", length)
	}
	rest := make([]byte, length-headerBytes)
	if _, err := io.ReadFull(r, rest); err != nil {
		return nil, err
	}
	m := &message{id: id}
	switch op {
	case wiremessage.OpMsg:
		return m, m.parse(rest)
	case opQuery:
		m.legacy = true
		return m, m.parseLegacy(rest)
	}
	return nil, fmt.Errorf("the opcode %s is not known to the model", op)
}

// parse reads the sections of an OP_MSG. The documents share the message's bytes, which do not
// change.
func (m *message) parse(b []byte) error {
	flags, b, ok := wiremessage.ReadMsgFlags(b)
	if !ok {
		return errMalformed
	}
	m.silent, m.exhaust = flags&wiremessage.MoreToCome != 0, flags&wiremessage.ExhaustAllowed != 0
	if flags&wiremessage.ChecksumPresent != 0 {
		return errors.New("checksums are not known to the model")
	}
	for len(b) > 0 {
		var kind wiremessage.SectionType
		if kind, b, ok = wiremessage.ReadMsgSectionType(b); !ok {
			return errMalformed
		}
		switch kind {
		case wiremessage.SingleDocument:
			doc, rest, ok := wiremessage.ReadMsgSectionSingleDocument(b)
			if !ok {
				return errMalformed
			}
			m.body, b = bson.Raw(doc), rest
		case wiremessage.DocumentSequence:
			name, docs, rest, ok := wiremessage.ReadMsgSectionDocumentSequence(b)
			if !ok {
				return errMalformed
			}
			if m.sequences == nil {
				m.sequences = map[string][]bson.Raw{}
			}
			for _, d := range docs {
				m.sequences[name] = append(m.sequences[name], bson.Raw(d))
			}
			b = rest
		default:
			return fmt.Errorf("a section of kind %d", kind)
		}
	}
	if m.body == nil {
		return errMalformed
	}
	for _, docs := range m.sequences {
		for _, d := range docs {
			if err := d.Validate(); err != nil {
				return err
			}
		}
	}
	return m.body.Validate()
}

// parseLegacy reads an OP_QUERY: flags, the collection's name, the numbers to skip and to return,
// the command.
func (m *message) parseLegacy(b []byte) error {
	if len(b) < 4 {
		return errMalformed
	}
	_, b, ok := bytes.Cut(b[4:], []byte{0})
	if !ok || len(b) < 8 {
		return errMalformed
	}
	m.body = bson.Raw(b[8:])
	return m.body.Validate()
}

// next is the message that a sender would send after a reply, if that did not come by itself: a hello that waits for a change
// of what the reply says. nil: no further reply comes by itself.
func (m *message) next(reply bson.Raw, replyID int32) *message {
	version, err := reply.LookupErr("topologyVersion")
	if !m.exhaust || m.body.Lookup("maxAwaitTimeMS").IsZero() || err != nil {
		return nil
	}
	elements, err := m.body.Elements()
	if err != nil {
		return nil
	}
	var body bson.D
	for _, e := range elements {
		if e.Key() == "topologyVersion" {
			body = append(body, bson.E{Key: e.Key(), Value: version})
		} else {
			body = append(body, bson.E{Key: e.Key(), Value: e.Value()})
		}
	}
	raw, err := bson.Marshal(body)
	if err != nil {
		return nil
	}
	return &message{id: replyID, exhaust: true, body: raw}
}

var nextReply atomic.Int32

// appendReply appends the answer to m, whose id is replyID. more says that another one follows.
func appendReply(dst []byte, m *message, reply bson.Raw, replyID int32, more bool) []byte {
	start := len(dst)
	op := wiremessage.OpMsg
	if m.legacy {
		op = wiremessage.OpReply
	}
	_, dst = wiremessage.AppendHeaderStart(dst, replyID, m.id, op)
	if m.legacy {
		dst = wiremessage.AppendReplyFlags(dst, 0)
		dst = wiremessage.AppendReplyCursorID(dst, 0)
		dst = wiremessage.AppendReplyStartingFrom(dst, 0)
		dst = wiremessage.AppendReplyNumberReturned(dst, 1)
	} else {
		var flags wiremessage.MsgFlag
		if more {
			flags = wiremessage.MoreToCome
		}
		dst = wiremessage.AppendMsgFlags(dst, flags)
		dst = wiremessage.AppendMsgSectionType(dst, wiremessage.SingleDocument)
	}
	dst = append(dst, reply...)
	binary.LittleEndian.PutUint32(dst[start:], uint32(len(dst)-start))
	return dst
}
