package mongolog

import (
	"errors"
	"slices"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
)

// MongoDB's error codes that matter here.
const (
	codeUnauthorized              = 13
	codeAuthenticationFailed      = 18
	codeNamespaceNotFound         = 26
	codeNamespaceExists           = 48
	codeIndexOptionsConflict      = 85
	codeIndexKeySpecsConflict     = 86
	codeUnsatisfiableWriteConcern = 100
	codeNoMajorityReads           = 148
	codeDuplicateKey              = 11000
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

// hasCode reports whether the server answered with one of these error codes.
func hasCode(err error, codes ...int) bool {
	server, ok := errors.AsType[mongo.ServerError](err)
	return ok && slices.ContainsFunc(codes, server.HasErrorCode)
}

// isBadDocument reports whether the server refused a document because of its content.
func isBadDocument(err error) bool { return hasCode(err, badDocument...) }

// isPermanent reports whether another try would fail the same way.
func isPermanent(err error) bool {
	_, broken := errors.AsType[*document.Error](err)
	return broken || hasCode(err, codeUnauthorized, codeAuthenticationFailed)
}
