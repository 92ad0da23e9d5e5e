package core

import (
	"errors"
	"slices"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
)

// MongoDB's error codes that matter here.
const (
	CodeUnauthorized              = 13
	CodeAuthenticationFailed      = 18
	CodeNamespaceNotFound         = 26
	CodeNamespaceExists           = 48
	CodeIndexOptionsConflict      = 85
	CodeIndexKeySpecsConflict     = 86
	CodeUnsatisfiableWriteConcern = 100
	CodeNoMajorityReads           = 148
	CodeNotWritablePrimary        = 10107
	CodeDuplicateKey              = 11000
)

// badDocument are the codes of errors that the document itself causes, so another try would not
// help: BadValue, TypeMismatch, Overflow, InvalidBSON, DollarPrefixedFieldName, EmptyFieldName,
// DottedFieldName, DocumentValidationFailure, BSONObjectTooLarge, KeyTooLong and two of "the
// document is too large".
var badDocument = []int{2, 14, 15, 22, 52, 56, 57, 121, 10334, 17280, 17419, 17420}

// notOffered are the codes with which servers refuse a feature that they lack: BadValue,
// FailedToParse, IllegalOperation, CommandNotFound, InvalidOptions, CommandNotSupported,
// NotImplemented, APIStrictError, and Atlas's own.
var notOffered = []int{2, 9, 20, 59, 72, 115, 238, 323, 8000}

// HasCode reports whether the server answered with one of these error codes.
func HasCode(err error, codes ...int) bool {
	server, ok := errors.AsType[mongo.ServerError](err)
	return ok && slices.ContainsFunc(codes, server.HasErrorCode)
}

// IsBadDocument reports whether the server refused a document because of its content.
func IsBadDocument(err error) bool { return HasCode(err, badDocument...) }

// IsNotOffered reports whether the server lacks the feature.
func IsNotOffered(err error) bool { return HasCode(err, notOffered...) }

// IsRefusedBefore reports whether the server did not begin to execute a command, since it is not the
// primary.
func IsRefusedBefore(err error) bool {
	command, ok := errors.AsType[mongo.CommandError](err)
	return ok && command.Code == CodeNotWritablePrimary
}

// IsPermanent reports whether another try would fail the same way.
func IsPermanent(err error) bool {
	_, broken := errors.AsType[*document.Error](err)
	return broken || HasCode(err, CodeUnauthorized, CodeAuthenticationFailed)
}

// onlyDuplicates returns the indexes of the documents with duplicate keys, if these alone prevented
// an unordered insert from storing everything.
func onlyDuplicates(err error) (indexes []int, only bool) {
	var bulk mongo.BulkWriteException
	if !errors.As(err, &bulk) || bulk.WriteConcernError != nil {
		return nil, false
	}
	for _, e := range bulk.WriteErrors {
		if e.Code != CodeDuplicateKey {
			return nil, false
		}
		indexes = append(indexes, e.Index)
	}
	return indexes, true
}

// Advice is what to do about an error that does not go away by itself.
func Advice(err error) string {
	switch {
	case HasCode(err, CodeUnauthorized):
		return " (the user in the store's URL needs the role readWrite on its database)"
	case HasCode(err, CodeAuthenticationFailed):
		return " (the user or password in the store's URL is wrong)"
	case HasCode(err, CodeNoMajorityReads):
		return " (the server runs with enableMajorityReadConcern off, which the log cannot use)"
	}
	return ""
}

// UnsupportedError says why the log can never use this store.
type UnsupportedError struct{ Reason string }
