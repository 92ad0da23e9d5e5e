// Package policypb has the protobuf schema of policies between control planes and sidecars, and
// converts it from and to the documents of internal/policy.
package policypb

import (
	"iter"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sluice-bus/sluice/internal/policy"
)

// PolicyPackType is the type of the resources, as xDS names it.
const PolicyPackType = "type.googleapis.com/sluice.v1.PolicyPack"

// FromEffective converts all fields that apply to a topic.
func FromEffective(e *policy.Effective) *Settings {
	s := &Settings{}
	for path, v := range e.Values() {
		set(s.ProtoReflect(), path, v)
	}
	if e.Schema.Version > 0 {
		s.Schema.Version = &e.Schema.Version
	}
	return s
}

// set stores a value at a path such as publish.rate. A test makes sure that the schema has every
// field of the document, so a missing one is a defect.
func set(m protoreflect.Message, path string, v any) {
	name, rest, nested := strings.Cut(path, ".")
	field := m.Descriptor().Fields().ByName(protoreflect.Name(name))
	if field == nil {
		panic("policypb: the schema has no field " + path)
	}
	if nested {
		set(m.Mutable(field).Message(), rest, v)
		return
	}
	if d, ok := v.(time.Duration); ok {
		m.Set(field, protoreflect.ValueOfMessage(durationpb.New(d).ProtoReflect()))
		return
	}
	m.Set(field, protoreflect.ValueOf(v))
}

// Effective reads all fields that apply to a topic. An absent field has its default. An unknown
// field is ignored, since a newer control plane sends all fields, also unset ones. The error is a
// wire.Error with code invalid_policy and every bad field.
func (s *Settings) Effective() (*policy.Effective, error) {
	e, err := policy.FromValues(values(s.ProtoReflect(), ""))
	if err == nil && e.Schema.JSONSchema != "" && s.GetSchema().Version != nil {
		e.Schema.Version = s.GetSchema().GetVersion()
	}
	return e, err
}

// schemaVersion is the only path that is not a field of the document.
const schemaVersion = "schema.version"

// values yields the fields that are set, by their paths in the document.
func values(m protoreflect.Message, prefix string) iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		if !m.IsValid() {
			return
		}
		m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			path := prefix + string(field.Name())
			if path == schemaVersion {
				return true
			}
			if field.Message() == nil {
				return yield(path, v.Interface())
			}
			if d, ok := v.Message().Interface().(*durationpb.Duration); ok {
				return yield(path, duration(d))
			}
			for inner, value := range values(v.Message(), path+".") {
				if !yield(inner, value) {
					return false
				}
			}
			return true
		})
	}
}

// duration returns the time.Duration of a message, or an error.
func duration(d *durationpb.Duration) any {
	if err := d.CheckValid(); err != nil {
		return err.Error()
	}
	return d.AsDuration()
}
