package query

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// An Error is the server's error of a command or of one of its writes.
type Error struct {
	Code     int32
	CodeName string
	Message  string
	// Info has further fields, as keyPattern and keyValue of a duplicate key. It may be nil.
	Info bson.D
}

func (e *Error) Error() string { return e.CodeName + ": " + e.Message }

// The server's error codes, as https://www.mongodb.com/docs/manual/reference/error-codes/ has them.
const (
	BadValue                        int32 = 2
	FailedToParse                   int32 = 9
	TypeMismatch                    int32 = 14
	IllegalOperation                int32 = 20
	NamespaceNotFound               int32 = 26
	IndexNotFound                   int32 = 27
	PathNotViable                   int32 = 28
	ConflictingUpdateOperators      int32 = 40
	NamespaceExists                 int32 = 48
	DollarPrefixedFieldName         int32 = 52
	EmptyFieldName                  int32 = 56
	ImmutableField                  int32 = 66
	CannotCreateIndex               int32 = 67
	InvalidOptions                  int32 = 72
	InvalidNamespace                int32 = 73
	IndexOptionsConflict            int32 = 85
	IndexKeySpecsConflict           int32 = 86
	CappedPositionLost              int32 = 136
	CannotIndexParallelArrays       int32 = 171
	QueryPlanKilled                 int32 = 175
	InvalidIndexSpecificationOption int32 = 197
	BSONObjectTooLarge              int32 = 10334
	DuplicateKey                    int32 = 11000
	UnknownStage                    int32 = 40324
)

var codeNames = map[int32]string{
	BadValue: "BadValue", FailedToParse: "FailedToParse", TypeMismatch: "TypeMismatch", IllegalOperation: "IllegalOperation",
	NamespaceNotFound: "NamespaceNotFound", IndexNotFound: "IndexNotFound", PathNotViable: "PathNotViable",
	ConflictingUpdateOperators: "ConflictingUpdateOperators", NamespaceExists: "NamespaceExists",
	DollarPrefixedFieldName: "DollarPrefixedFieldName", EmptyFieldName: "EmptyFieldName",
	ImmutableField: "ImmutableField", CannotCreateIndex: "CannotCreateIndex", InvalidOptions: "InvalidOptions",
	InvalidNamespace: "InvalidNamespace", IndexOptionsConflict: "IndexOptionsConflict",
	IndexKeySpecsConflict: "IndexKeySpecsConflict", CappedPositionLost: "CappedPositionLost",
	CannotIndexParallelArrays: "CannotIndexParallelArrays", QueryPlanKilled: "QueryPlanKilled",
	InvalidIndexSpecificationOption: "InvalidIndexSpecificationOption",
	BSONObjectTooLarge:              "BSONObjectTooLarge", DuplicateKey: "DuplicateKey",
}

// Errorf returns the error with the code. The server calls codes that have no name LocationN.
func Errorf(code int32, format string, args ...any) *Error {
	name, ok := codeNames[code]
	if !ok {
		name = fmt.Sprintf("Location%d", code)
	}
	return &Error{Code: code, CodeName: name, Message: fmt.Sprintf(format, args...)}
}
