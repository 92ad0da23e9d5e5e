package push

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// Bounds of the file.
const (
	maxFileBytes   = 1 << 20
	maxSecretBytes = 4 << 10 // of a file of secrets
	maxEntries     = 1000
	maxInflight    = 1000
)

// Format is how an event is written into a request.
type Format string

// The formats.
const (
	FormatEvent       Format = "event"
	FormatCloudEvents Format = "cloudevents" // in binary mode
	FormatStructured  Format = "cloudevents-structured"
	FormatPayload     Format = "payload"
)

// Entry is one endpoint, and the events that it gets.
type Entry struct {
	Topic, Group string
	URL          *url.URL
	Format       Format
	MaxInflight  int
	Timeout      time.Duration
	SecretFile   string
	Headers      http.Header // of every request
	From         string      // where the group begins, if there is none yet; "": at the latest event
	Filter       *wire.Filter
	Identity     string // of --auth-config, with whose rights the entry consumes

	secrets [][]byte // of SecretFile
}

// key names an entry in its file.
type key struct{ topic, group string }

func (e *Entry) key() key { return key{e.Topic, e.Group} }

// file is the file of the endpoints. It is parsed again only when its text has changed, since it is read twice a second.
type file struct {
	path  string
	known func(identity string) error // returns what is wrong with an identity

	// What was read last, and what parse has made of it.
	text    []byte
	entries []Entry
	lines   []int
	err     error
}

// load reads the file and those that it names; sum is a digest of all of them. The error has every mistake, with its line; there is a
// sum if the file itself could be read.
func (f *file) load() (entries []Entry, sum []byte, err error) {
	text, err := readFile(f.path, maxFileBytes)
	if err != nil {
		return nil, nil, err
	}
	if f.text == nil || !bytes.Equal(text, f.text) {
		f.text = text
		f.entries, f.lines, f.err = parse(text)
	}
	hash := sha256.New()
	hash.Write(text)
	entries = slices.Clone(f.entries)
	errs := []error{f.err}
	for i := range entries {
		e, line := &entries[i], f.lines[i]
		if err := f.known(e.Identity); err != nil {
			errs = append(errs, fmt.Errorf("line %d: identity: %w", line, err))
		}
		if e.SecretFile == "" {
			continue
		}
		name := e.SecretFile
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(f.path), name)
		}
		secrets, err := readFile(name, maxSecretBytes)
		fmt.Fprintf(hash, "\n%q %v", secrets, err)
		if err == nil {
			e.secrets, err = parseSecrets(secrets)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("line %d: secret_file: %w", line, err))
		}
	}
	return entries, hash.Sum(nil), errors.Join(errs...)
}

func readFile(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s has more than %d bytes", path, most)
	}
	return text, err
}

// parse reads a list of entries, and the line of each. The error has every mistake, with its line.
func parse(text []byte) (entries []Entry, lines []int, err error) {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc yaml.Node
	if err := dec.Decode(&doc); err == io.EOF {
		return nil, nil, nil // no endpoint gets anything
	} else if err != nil {
		return nil, nil, err
	}
	if err := dec.Decode(new(yaml.Node)); err != io.EOF {
		return nil, nil, errors.New("the file has more than one YAML document; write one list")
	}
	list := doc.Content[0]
	switch {
	case list.Kind != yaml.SequenceNode && list.ShortTag() != "!!null":
		return nil, nil, fmt.Errorf("line %d: the file must be a list of endpoints", list.Line)
	case len(list.Content) > maxEntries:
		return nil, nil, fmt.Errorf("line %d: the list has more than %d entries", list.Content[maxEntries].Line, maxEntries)
	}
	var errs []error
	first := map[key]int{} // lines
	for _, n := range list.Content {
		e := Entry{Format: FormatEvent, MaxInflight: defaultInflight, Timeout: defaultTimeout}
		wrong := e.read(n)
		errs = append(errs, wrong...)
		if line := first[e.key()]; line > 0 && len(wrong) == 0 {
			errs = append(errs, fmt.Errorf("line %d: topic %s and group %s have an entry already, on line %d: a group has one endpoint",
				n.Line, e.Topic, e.Group, line))
		}
		first[e.key()] = n.Line
		entries, lines = append(entries, e), append(lines, n.Line)
	}
	return entries, lines, errors.Join(errs...)
}
