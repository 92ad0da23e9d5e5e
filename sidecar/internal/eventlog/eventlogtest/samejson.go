package eventlogtest

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// SameJSON returns an error if two JSON texts differ in what the contract promises: the order of
// members, the decimal values of numbers, and the decoded strings.
func SameJSON(a, b []byte) error {
	x, y := codec.NewTokens(a), codec.NewTokens(b)
	for i := 0; ; i++ {
		if err := errors.Join(x.Next(), y.Next()); err != nil {
			return err
		}
		if x.Kind != y.Kind {
			return fmt.Errorf("token %d: %q became %q", i, x.Kind, y.Kind)
		}
		same := true
		switch x.Kind {
		case codec.TokenEnd:
			return nil
		case codec.TokenNumber:
			same = bytes.Equal(codec.AppendDecimal(nil, x.Raw()), codec.AppendDecimal(nil, y.Raw()))
		case codec.TokenName, '"':
			s, _ := x.AppendText(nil)
			u, _ := y.AppendText(nil)
			same = bytes.Equal(s, u)
		}
		if !same {
			return fmt.Errorf("token %d: %.60s became %.60s", i, x.Raw(), y.Raw())
		}
	}
}
