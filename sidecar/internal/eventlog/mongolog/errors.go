package mongolog

import (
	"errors"
	"slices"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// MongoDB's error codes that matter here.
const (
	codeBadValue                  = 2
	codeUnauthorized              = 13
	codeAuthenticationFailed      = 18
	codeNamespaceExists           = 48
	codeIndexOptionsConflict      = 85
	codeIndexKeySpecsConflict     = 86
	codeUnsatisfiableWriteConcern = 100
	codeNoMajorityReads           = 148
	codeDuplicateKey              = 11000
)

// badDocument are the codes of errors that a document brings with it, so that
// another try is no use: BadValue, TypeMismatch, Overflow, InvalidBSON,
// DollarPrefixedFieldName, EmptyFieldName, DottedFieldName,
// DocumentValidationFailure, BSONObjectTooLarge, KeyTooLong and two of "the
// document is too large".
var badDocument = []int{2, 14, 15, 22, 52, 56, 57, 121, 10334, 17280, 17419, 17420}

// isBadDocument reports whether the server refused a document for what is in it.
func isBadDocument(err error) bool {
	var server mongo.ServerError
	return errors.As(err, &server) && slices.ContainsFunc(badDocument, server.HasErrorCode)
}

// isPermanent reports whether another try would fail the same way.
func isPermanent(err error) bool {
	var server mongo.ServerError
	return errors.As(err, &server) && (server.HasErrorCode(codeUnauthorized) || server.HasErrorCode(codeAuthenticationFailed))
}

// notOffered are the codes of errors by which servers refuse what they do not
// have: BadValue, FailedToParse, IllegalOperation, CommandNotFound,
// InvalidOptions, CommandNotSupported, NotImplemented, APIStrictError, and
// Atlas's own.
var notOffered = []int{2, 9, 20, 59, 72, 115, 238, 323, 8000}

func isNotOffered(err error) bool {
	var server mongo.ServerError
	return errors.As(err, &server) && slices.ContainsFunc(notOffered, server.HasErrorCode)
}
