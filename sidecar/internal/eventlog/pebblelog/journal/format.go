package journal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
)

// A journal is a folder of segment files. A position is a byte's place in the sequence of all segments, also of
// those that were dropped. A file is named by its base, the position of its first byte, in 20 digits. It begins
// with a header, and frames follow, one for each commit. All numbers are little-endian.
//
//	header   magic    8 bytes: "sluicelg"
//	         store    16 bytes: the store's id
//	         base     8 bytes
//	         checksum 4 bytes: CRC-32C of the bytes before it
//
//	frame    length   4 bytes: of the body, at least 1
//	         checksum 4 bytes: CRC-32C of the frame's position as 8 bytes, the length, and the body
//	         body     what Append was given
//
// The position in the checksum keeps a frame from being valid at another place. A segment ends where the next one
// begins, whatever its file has behind that: zeros that were reserved, and after a crash a part of a frame. Where
// small segments were merged (merge.go), further headers stand between frames; no length of a frame begins like magic.
//
// ACKED, beside the segments' folder, says up to which position frames were synced when it was written. It is
// written before a synced frame is answered, and synced with each new segment. So a kill leaves the latest, and a
// power failure an older one.
//
//	acked    position 8 bytes
//	         checksum 4 bytes: CRC-32C of the position
const (
	magic       = "sluicelg"
	headerSize  = 8 + 16 + 8 + 4
	frameHeader = 4 + 4
	ackedSize   = 8 + 4
	suffix      = ".log"
)

// maxBody bounds a frame's body.
const maxBody = 1 << 30

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum is the CRC-32C of data behind what sum is of; 0 at the beginning.
func Checksum(sum uint32, data []byte) uint32 { return crc32.Update(sum, castagnoli, data) }

func fileName(base uint64) string { return fmt.Sprintf("%020d%s", base, suffix) }

func baseOf(name string) (base uint64, ok bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok || len(digits) != 20 {
		return 0, false
	}
	base, err := strconv.ParseUint(digits, 10, 64)
	return base, err == nil
}

func appendHeader(b []byte, store [16]byte, base uint64) []byte {
	start := len(b)
	b = append(append(b, magic...), store[:]...)
	b = binary.LittleEndian.AppendUint64(b, base)
	return binary.LittleEndian.AppendUint32(b, Checksum(0, b[start:]))
}

// frameSum is the checksum of a frame, given its length as it is stored.
func frameSum(at uint64, length, head, tail []byte) uint32 {
	var place [8]byte
	binary.LittleEndian.PutUint64(place[:], at)
	return Checksum(Checksum(Checksum(Checksum(0, place[:]), length), head), tail)
}

func appendFrame(b []byte, at uint64, head, tail []byte) []byte {
	start := len(b)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(head)+len(tail)))
	b = binary.LittleEndian.AppendUint32(b, frameSum(at, b[start:start+4], head, tail))
	return append(append(b, head...), tail...)
}

func appendAcked(b []byte, at uint64) []byte {
	start := len(b)
	b = binary.LittleEndian.AppendUint64(b, at)
	return binary.LittleEndian.AppendUint32(b, Checksum(0, b[start:]))
}
