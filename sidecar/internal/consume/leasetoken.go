package consume

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"

	"github.com/sluice-bus/sluice/sidecar/internal/group"
)

// A lease as clients see it is URL-safe base64, without padding, of
//
//	checksum   4 bytes, CRC-32 (IEEE) of topic, 0, group, 0 and what follows
//	process    8 bytes, drawn when the sidecar started
//	partition, seq, number   uvarints, of the group's lease
//	node       the rest: the name of the sidecar
//
// The process tells leases of this life from those of earlier ones under the same name, and the
// checksum tells a lease of another group from one of this.
const (
	checksumBytes = 4
	processBytes  = 8
	// maxLeaseBytes is larger than a lease with the longest name.
	maxLeaseBytes = 1024
)

// leaser makes and reads the leases of one process.
type leaser struct {
	node    string
	process [processBytes]byte
}

func newLeaser(node string) leaser {
	l := leaser{node: node}
	_, _ = rand.Read(l.process[:]) // it never fails
	return l
}

// appendLease appends the lease of a delivery to a group.
func (l *leaser) appendLease(dst []byte, topic, name string, d group.Lease) []byte {
	var room [128]byte
	text := append(room[:checksumBytes], l.process[:]...)
	text = binary.AppendUvarint(text, uint64(d.Partition))
	text = binary.AppendUvarint(text, d.Seq)
	text = binary.AppendUvarint(text, d.Number)
	text = append(text, l.node...)
	binary.BigEndian.PutUint32(text, leaseChecksum(topic, name, text[checksumBytes:]))
	return base64.RawURLEncoding.AppendEncode(dst, text)
}

// readLease reads a lease of a group. ours says that this process gave the lease; node is the name
// of the sidecar that gave it. ok is false if the text is no lease of the group.
func (l *leaser) readLease(topic, name, token string) (d group.Lease, node string, ours, ok bool) {
	if len(token) > maxLeaseBytes {
		return d, "", false, false
	}
	text, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(text) < checksumBytes+processBytes {
		return d, "", false, false
	}
	sum, text := binary.BigEndian.Uint32(text), text[checksumBytes:]
	if sum != leaseChecksum(topic, name, text) {
		return d, "", false, false
	}
	process := [processBytes]byte(text)
	rest := text[processBytes:]
	var numbers [3]uint64
	for i := range numbers {
		n, size := binary.Uvarint(rest)
		if size <= 0 {
			return d, "", false, false
		}
		numbers[i], rest = n, rest[size:]
	}
	d = group.Lease{Partition: int(min(numbers[0], 1<<31-1)), Seq: numbers[1], Number: numbers[2]}
	return d, string(rest), process == l.process, true
}

func leaseChecksum(topic, name string, text []byte) uint32 {
	sum := crc32.ChecksumIEEE([]byte(topic + "\x00" + name + "\x00"))
	return crc32.Update(sum, crc32.IEEETable, text)
}
