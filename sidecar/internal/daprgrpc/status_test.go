package daprgrpc

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// Every code has a status, which agrees with its HTTP status on whose mistake it is, and says when to try again where it can.
func TestStatusOfEveryCode(t *testing.T) {
	for _, c := range wire.Codes() {
		e := wire.Errorf(c.Code, "why")
		e.RetryAfter = 1500 * time.Millisecond
		s := status.Convert(statusOf(e))
		var info *errdetails.ErrorInfo
		var again *errdetails.RetryInfo
		for _, d := range s.Details() {
			switch d := d.(type) {
			case *errdetails.ErrorInfo:
				info = d
			case *errdetails.RetryInfo:
				again = d
			}
		}
		if s.Message() != "why" || info.GetReason() != strings.ToUpper(string(c.Code)) || info.GetDomain() != domain {
			t.Errorf("%s: %v with %v", c.Code, s, info)
		}
		if _, timed := e.RetryAfterMS(); timed != (again != nil) || timed && again.GetRetryDelay().AsDuration() != e.RetryAfter {
			t.Errorf("%s: to be tried again after %v", c.Code, again)
		}
		isServers := s.Code() == codes.Unavailable || s.Code() == codes.Internal
		if c.Status >= 500 && !isServers && c.Code != wire.PartialFleet || c.Status < 500 && isServers {
			t.Errorf("%s, HTTP %d: %v", c.Code, c.Status, s.Code())
		}
	}
}
