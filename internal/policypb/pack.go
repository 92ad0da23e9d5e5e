package policypb

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Pack is a PolicyPack without a message for each policy: a sidecar decodes all policies when it
// starts.
type Pack struct {
	Settings [][]byte // of the encoded pack
	Policies []PackedPolicy
}

// PackedPolicy is a PolicyPack.Policy.
type PackedPolicy struct {
	Name     string
	Version  int64
	Settings uint32
}

// DecodePack decodes a PolicyPack as proto.Unmarshal does.
func DecodePack(encoded []byte) (p Pack, err error) {
	err = eachField(encoded, func(field protowire.Number, is protowire.Type, value []byte, _ uint64) error {
		switch {
		case field == 1 && is == protowire.BytesType:
			p.Settings = append(p.Settings, value)
		case field == 2 && is == protowire.BytesType:
			p.Policies = append(p.Policies, PackedPolicy{})
			return p.Policies[len(p.Policies)-1].decode(value)
		}
		return nil
	})
	return p, err
}

func (p *PackedPolicy) decode(encoded []byte) error {
	return eachField(encoded, func(field protowire.Number, is protowire.Type, value []byte, number uint64) error {
		switch {
		case field == 1 && is == protowire.BytesType:
			if !utf8.Valid(value) {
				return errors.New("the name of a policy is not UTF-8")
			}
			p.Name = string(value)
		case field == 2 && is == protowire.VarintType:
			p.Version = int64(number)
		case field == 3 && is == protowire.VarintType:
			p.Settings = uint32(number)
		}
		return nil
	})
}

// eachField calls f with each field of an encoded message, and with its value where that is bytes or
// a varint.
func eachField(encoded []byte, f func(field protowire.Number, is protowire.Type, value []byte, number uint64) error) error {
	for len(encoded) > 0 {
		field, is, n := protowire.ConsumeTag(encoded)
		if n < 0 {
			return protowire.ParseError(n)
		}
		if field > protowire.MaxValidNumber {
			return fmt.Errorf("field number %d, at most %d is valid", field, protowire.MaxValidNumber)
		}
		encoded = encoded[n:]
		var value []byte
		var number uint64
		switch is {
		case protowire.BytesType:
			value, n = protowire.ConsumeBytes(encoded)
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(encoded)
		default:
			n = protowire.ConsumeFieldValue(field, is, encoded)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		if err := f(field, is, value, number); err != nil {
			return err
		}
		encoded = encoded[n:]
	}
	return nil
}
