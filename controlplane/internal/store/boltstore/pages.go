package boltstore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"

	"go.etcd.io/bbolt"
)

// The forms of bbolt's pages, in the byte order of the machine. A position counts from the start of
// its element.
//
//	page             its number u64, kind u16, elements u16, how many more pages it goes over u32
//	branch element   position u32, size of the key u32, number of the page below u64
//	leaf element     kind (1: a bucket) u32, position u32, size of the key u32, of the value u32
//	bucket           number of its root page u64, sequence u64; with number 0 its only page follows
const (
	headerBytes  = 16
	elementBytes = 16
	bucketBytes  = 16
	branchKind   = 1
	leafKind     = 2
	metaPages    = 2 // the first ones, which have a checksum
)

// place is where a page belongs: its number, its first key, and a key that is above all of its own;
// nil: any.
type place struct {
	number     uint64
	first, end []byte
}

type pageCheck struct {
	file     io.ReaderAt
	pageSize uint64
	used     []bool // by number
}

// checkPages reads the pages of a transaction, and refuses what bbolt does not write. bbolt trusts
// its pages: for one that is damaged it panics, or later writes over others. When it opens a file
// for writing it walks through all pages in a goroutine of its own, whose panics nobody can recover.
func checkPages(file io.ReaderAt, tx *bbolt.Tx) error {
	size := tx.DB().Info().PageSize
	c := pageCheck{file, uint64(size), make([]bool, tx.Size()/int64(size))}
	return c.page(place{number: uint64(tx.Cursor().Bucket().RootPage())})
}

func (c *pageCheck) page(at place) error {
	count := uint64(len(c.used))
	if at.number < metaPages || at.number >= count {
		return at.damaged("is not in the file")
	}
	header, err := c.read(at.number, headerBytes)
	if err != nil {
		return err
	}
	more := uint64(binary.NativeEndian.Uint32(header[12:]))
	if more >= count-at.number {
		return at.damaged("goes over the end of the file")
	}
	for n := at.number; n <= at.number+more; n++ {
		if c.used[n] {
			return at.damaged("uses one that is used twice")
		}
		c.used[n] = true
	}
	page, err := c.read(at.number, c.pageSize*(1+more))
	if err != nil {
		return err
	}
	return c.content(at, page)
}

func (c *pageCheck) read(number, size uint64) ([]byte, error) {
	text := make([]byte, size)
	_, err := c.file.ReadAt(text, int64(number*c.pageSize))
	return text, err
}

// content checks a page and those below it. The page of a small bucket, which is in a leaf element,
// has the number 0.
func (c *pageCheck) content(at place, page []byte) error {
	if len(page) < headerBytes || binary.NativeEndian.Uint64(page) != at.number {
		return at.damaged("says that it is another one")
	}
	kind, count := binary.NativeEndian.Uint16(page[8:]), int(binary.NativeEndian.Uint16(page[10:]))
	if kind != leafKind && (kind != branchKind || at.number == 0) {
		return at.damaged("is of another kind")
	}
	if headerBytes+count*elementBytes > len(page) || count == 0 && (kind == branchKind || at.first != nil) {
		return at.damaged("has another number of elements")
	}
	var last []byte
	var below []place
	for i := range count {
		e := page[headerBytes+i*elementBytes:]
		key, value := element(e, kind)
		ordered := bytes.Compare(key, last) > 0
		if i == 0 && at.first != nil {
			ordered = bytes.Equal(key, at.first)
		}
		if !ordered || at.end != nil && bytes.Compare(key, at.end) >= 0 {
			return at.damaged("has a key that is not where it belongs")
		}
		last = key
		if kind == leafKind {
			if err := c.value(at, binary.NativeEndian.Uint32(e), value); err != nil {
				return err
			}
			continue
		}
		if i > 0 {
			below[i-1].end = key
		}
		below = append(below, place{number: binary.NativeEndian.Uint64(e[8:]), first: key, end: at.end})
	}
	for _, b := range below {
		if err := c.page(b); err != nil {
			return err
		}
	}
	return nil
}

// element reads an element; without a key, which bbolt always has, it is not all in the page.
func element(e []byte, kind uint16) (key, value []byte) {
	word := func(i int) uint64 { return uint64(binary.NativeEndian.Uint32(e[4*i:])) }
	position, keySize, valueSize := word(0), word(1), uint64(0)
	if kind == leafKind {
		position, keySize, valueSize = word(1), word(2), word(3)
	}
	end := position + keySize
	if end+valueSize > uint64(len(e)) {
		return nil, nil
	}
	return e[position:end], e[end : end+valueSize]
}

// value checks the pages of a bucket.
func (c *pageCheck) value(at place, kind uint32, value []byte) error {
	switch {
	case kind == 0:
		return nil
	case kind > 1 || len(value) < bucketBytes:
		return at.damaged("has an element of another kind")
	}
	if root := binary.NativeEndian.Uint64(value); root != 0 {
		return c.page(place{number: root})
	}
	if err := c.content(place{}, value[bucketBytes:]); err != nil {
		return at.damaged("has a bucket that is damaged")
	}
	return nil
}

func (at place) damaged(how string) error {
	return fmt.Errorf("%w: its page %d %s", errDamaged, at.number, how)
}
