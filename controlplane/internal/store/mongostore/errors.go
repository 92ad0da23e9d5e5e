package mongostore

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/controlplane/internal/store"
)

// MongoDB's error codes that are used here.
const (
	codeUnauthorized         = 13
	codeAuthenticationFailed = 18
	codeNoMajorityReads      = 148
	codeObjectTooLarge       = 10334
)

// failed is the error of an operation that failed because of the network or the server; ctx is
// begin's. The error of the caller's own context stays as it is.
func failed(ctx context.Context, op string, err error) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errTimeout):
		return fmt.Errorf("%s: %w: %w: %w%s", op, store.ErrUnavailable, cause, err, hint(err))
	case cause != nil:
		return fmt.Errorf("%s: %w", op, cause)
	}
	return fmt.Errorf("%s: %w: %w%s", op, store.ErrUnavailable, err, hint(err))
}

// hint returns advice on an error that does not go away by itself.
func hint(err error) string {
	switch {
	case hasCode(err, codeUnauthorized):
		return " (the user in the store's URL needs the role readWrite on its database)"
	case hasCode(err, codeAuthenticationFailed):
		return " (the user or password in the store's URL is wrong)"
	case hasCode(err, codeNoMajorityReads):
		return " (the server runs with enableMajorityReadConcern off, which the policy store cannot use)"
	}
	return ""
}

func hasCode(err error, code int) bool {
	var server mongo.ServerError
	return errors.As(err, &server) && server.HasErrorCode(code)
}
