package sluice

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
)

func TestNackFor(t *testing.T) {
	no, far := errors.New("no"), int64(wire.MaxDelayMS)
	second := int64(1000)
	for _, c := range []struct {
		err  error
		want Nack
	}{
		{no, Nack{Reason: "no"}},
		{RetryIn(time.Second, no), Nack{Reason: "no", DelayMS: &second}},
		{fmt.Errorf("wrapped: %w", Hold(time.Second, no)), Nack{Reason: "wrapped: no", DelayMS: &second, Hold: true}},
		{Hold(1<<62, no), Nack{Reason: "no", DelayMS: &far, Hold: true}},
		{DeadLetter(no), Nack{Reason: "no", DeadLetter: true}},
	} {
		if got := nackFor(c.err); !reflect.DeepEqual(got, c.want) || !errors.Is(c.err, no) {
			t.Errorf("%v is nacked as %+v; want %+v", c.err, got, c.want)
		}
	}
}
