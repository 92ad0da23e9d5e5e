package progress

import (
	"encoding/binary"
	"hash/crc32"
)

// The file is a list of records. One Put writes one record. A record counts only if it is complete:
//
//	length   4 bytes, little-endian: of the entries
//	checksum 4 bytes, little-endian: CRC-32C of the length and the entries
//	entries  one after the other, up to the record's end:
//	         n and that many bytes, the key; n and that many bytes, the value,
//	         which is empty where the key is removed
//
// n is an unsigned varint. The checksum includes the length, so that a tail of zeros, which a power
// cut may leave, is no record.
const headerSize = 4 + 4

// maxEntries is how many bytes the entries of a record may have.
const maxEntries = 1 << 30

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// beginRecord reserves the header at the end of b. Once the entries are appended, sealRecord fills
// the header in, given b from the header on.
func beginRecord(b []byte) []byte { return append(b, make([]byte, headerSize)...) }

func sealRecord(record []byte) {
	binary.LittleEndian.PutUint32(record, uint32(len(record)-headerSize))
	binary.LittleEndian.PutUint32(record[4:], checksum(record))
}

func checksum(record []byte) uint32 {
	return crc32.Update(crc32.Checksum(record[:4], castagnoli), castagnoli, record[headerSize:])
}

func appendEntry(b []byte, key string, value []byte) []byte {
	b = append(binary.AppendUvarint(b, uint64(len(key))), key...)
	return append(binary.AppendUvarint(b, uint64(len(value))), value...)
}

// entrySize is what appendEntry appends.
func entrySize(key string, value []byte) int64 {
	var n [binary.MaxVarintLen64]byte
	return int64(binary.PutUvarint(n[:], uint64(len(key))) + len(key) +
		binary.PutUvarint(n[:], uint64(len(value))) + len(value))
}

// replay puts the entries of the complete records at the start of log into live, and returns the
// size of these records. live keeps no reference to log.
func replay(log []byte, live map[string][]byte) (valid int) {
	for {
		entries, size := firstRecord(log[valid:])
		if size == 0 {
			return valid
		}
		for _, e := range entries {
			if live[e.Key] = e.Value; len(e.Value) == 0 {
				delete(live, e.Key)
			}
		}
		valid += size
	}
}

// firstRecord reads the record at the start of b; its size is 0 if there is none or it is
// incomplete.
func firstRecord(b []byte) (entries []Entry, size int) {
	if len(b) < headerSize {
		return nil, 0
	}
	n := binary.LittleEndian.Uint32(b)
	if uint64(n) > uint64(len(b)-headerSize) {
		return nil, 0
	}
	size = headerSize + int(n)
	record := b[:size]
	if checksum(record) != binary.LittleEndian.Uint32(record[4:]) {
		return nil, 0
	}
	for rest := record[headerSize:]; len(rest) > 0; {
		var key, value []byte
		var ok bool
		if key, rest, ok = text(rest); ok {
			value, rest, ok = text(rest)
		}
		if !ok {
			return nil, 0
		}
		entries = append(entries, Entry{Key: string(key), Value: append([]byte(nil), value...)})
	}
	return entries, size
}

// text reads a length and that many bytes off the front of b.
func text(b []byte) (text, rest []byte, ok bool) {
	n, used := binary.Uvarint(b)
	if used <= 0 || n > uint64(len(b)-used) {
		return nil, nil, false
	}
	b = b[used:]
	return b[:n], b[n:], true
}
