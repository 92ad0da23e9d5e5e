package access

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// maxFileBytes bounds tokens, keys and certificates.
const maxFileBytes = 1 << 20

// source is the result of one poll: the file, and the files that it names.
type source struct {
	document []byte
	files    map[string]file // by the name that the document has
	sum      digest          // of all of it
}

type file struct {
	data []byte
	mode fs.FileMode
	err  error
}

// read reads all files. Files that cannot be read have their error; an error of the document itself
// is returned. Names in it are relative to its folder.
func read(path string, program Program) (*source, error) {
	main := readFile(path, maxDocumentBytes+1)
	if main.err != nil {
		return nil, main.err
	}
	s := &source{document: main.data, files: make(map[string]file)}
	sum := sha256.New()
	part := func(f file) {
		fmt.Fprintf(sum, "%d %v %v\n", len(f.data), f.mode, f.err) // a hash takes everything
		sum.Write(f.data)
	}
	part(main)
	doc, _ := parse(main.data, program) // build reports its mistakes
	for _, name := range doc.names() {
		at := name
		if !filepath.IsAbs(at) {
			at = filepath.Join(filepath.Dir(path), name)
		}
		f := readFile(at, maxFileBytes)
		part(f)
		s.files[name] = f
	}
	sum.Sum(s.sum[:0])
	return s, nil
}

// names returns the files that the document names, each once, in its order.
func (d *document) names() []string {
	var names []string
	add := func(name string) {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, e := range d.tokens {
		add(e.tokenFile)
	}
	if d.jwt != nil {
		add(d.jwt.keysFile)
		add(d.jwt.rootsCA)
	}
	if d.tls != nil {
		add(d.tls.cert)
		add(d.tls.key)
		add(d.tls.clientCA)
	}
	add(d.peers.TokenFile)
	return names
}

func readFile(path string, most int64) file {
	f, err := os.Open(path)
	if err != nil {
		return file{err: err}
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "read", Path: path, Err: errors.New("not a regular file")}
	}
	if err != nil {
		return file{err: err}
	}
	data, err := io.ReadAll(io.LimitReader(f, most))
	return file{data: data, mode: info.Mode(), err: err}
}

// certificates reads the certificates of a PEM file: at least one.
func certificates(data []byte) (pool *x509.CertPool, all []*x509.Certificate, err error) {
	pool = x509.NewCertPool()
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, nil, err
		}
		pool.AddCert(cert)
		all = append(all, cert)
	}
	if len(all) == 0 {
		return nil, nil, errors.New("it has no certificate in PEM form")
	}
	return pool, all, nil
}
