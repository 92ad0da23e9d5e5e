// Package secrets removes secrets from connection strings before they are shown, and reads secrets
// from files, which the list of processes does not show. It knows the form of a URL with a user and
// options, also of an invalid one, and nothing of its server.
package secrets

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"unicode"
)

// maxFileBytes bounds a secret's file.
const maxFileBytes = 128 << 10

// FromFile reads the secret on a file's only line.
func FromFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	secret := strings.TrimSpace(string(text))
	switch {
	case err != nil:
		return "", err
	case secret == "":
		return "", fmt.Errorf("%s is empty", path)
	case len(text) > maxFileBytes:
		return "", fmt.Errorf("%s has more than %d bytes", path, maxFileBytes)
	case strings.ContainsFunc(secret, unicode.IsSpace):
		return "", fmt.Errorf("%s has more than one line, or spaces in it", path)
	}
	return secret, nil
}

// Follow checks a secret's file and returns a function that reads it again each time, and returns
// the last secret while the file cannot be read. The function is safe for concurrent use.
func Follow(path string) (func() string, error) {
	first, err := FromFile(path)
	if err != nil {
		return nil, err
	}
	var last atomic.Pointer[string]
	last.Store(&first)
	return func() string {
		if now, err := FromFile(path); err == nil {
			last.Store(&now)
		}
		return *last.Load()
	}, nil
}

// Without returns a URL that may be shown: without user, password and options, some of which are
// secrets.
func Without(text string) string {
	scheme, _, rest, _ := split(text)
	return scheme + "://" + rest
}

// Redact returns the message of an error about a URL without secrets: parsers quote parts that they
// do not understand.
func Redact(err error, text string) string {
	if _, bad := errors.AsType[url.EscapeError](err); bad {
		return "a % in the user, the password or an option begins no escape; a percent sign itself is written %25"
	}
	_, user, _, query := split(text)
	_, password, _ := strings.Cut(user, ":")
	secrets := []string{user, password}
	for option := range strings.FieldsFuncSeq(query, func(r rune) bool { return r == '&' || r == ';' }) {
		_, value, _ := strings.Cut(option, "=")
		secrets = append(secrets, value)
	}
	message := err.Error()
	for _, secret := range secrets {
		for _, form := range []string{secret, unescaped(secret)} {
			if form != "" {
				message = strings.ReplaceAll(message, form, "…")
			}
		}
	}
	return message
}

// split splits a URL where its parts end at the latest, so that the rest contains no part of a
// secret.
func split(text string) (scheme, user, rest, query string) {
	scheme, rest, _ = strings.Cut(text, "://")
	rest, query, _ = strings.Cut(rest, "?")
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		user, rest = rest[:at], rest[at+1:]
	}
	return scheme, user, rest, query
}

func unescaped(s string) string {
	plain, err := url.QueryUnescape(s)
	if err != nil {
		return s
	}
	return plain
}
