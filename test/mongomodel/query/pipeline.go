package query

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A Pipeline is an aggregation's stages.
type Pipeline struct {
	stages  []stage
	leading *Filter
}

// A stage makes documents of documents.
type stage func(docs []bson.Raw) ([]bson.Raw, error)

// ParsePipeline returns the pipeline that an array of stages says.
func ParsePipeline(stages []byte) (*Pipeline, error) {
	if err := Validate(stages); err != nil {
		return nil, err
	}
	p := &Pipeline{}
	for _, v := range Fields(stages) {
		all := []element(nil)
		if isDocument(v) {
			all = elements(v.Value)
		}
		if len(all) != 1 {
			return nil, Errorf(40323, "A pipeline stage specification object must contain exactly one field.")
		}
		name, operand := all[0].key, all[0].value
		s, err := parseStage(name, operand)
		if err != nil {
			return nil, err
		}
		if name == "$match" && len(p.stages) == 0 {
			if p.leading, err = ParseFilter(operand.Value); err != nil {
				return nil, err
			}
		}
		p.stages = append(p.stages, s)
	}
	return p, nil
}

// Leading returns the filter of the $match that the pipeline starts with, or nil: an index may
// serve it.
func (p *Pipeline) Leading() *Filter { return p.leading }

// Run runs the stages on the documents: all of the collection, or all that Leading selects.
func (p *Pipeline) Run(docs []bson.Raw) ([]bson.Raw, error) {
	for _, s := range p.stages {
		made, err := s(docs)
		if err != nil {
			return nil, err
		}
		docs = made
	}
	return docs, nil
}

func parseStage(name string, operand bson.RawValue) (stage, error) {
	if name == "$limit" || name == "$skip" {
		return parseCut(name, operand)
	}
	if !isDocument(operand) {
		return nil, Errorf(UnknownStage, "%s with a %s is not known to the model", name, TypeName(operand))
	}
	switch name {
	case "$match":
		f, err := ParseFilter(operand.Value)
		return func(docs []bson.Raw) ([]bson.Raw, error) {
			return slices.DeleteFunc(slices.Clone(docs), func(doc bson.Raw) bool { return !f.Match(doc) }), nil
		}, err
	case "$sort":
		s, err := ParseKeyPattern(operand.Value)
		return func(docs []bson.Raw) ([]bson.Raw, error) { return s.Sort(docs) }, err
	case "$project":
		p, err := ParseProjection(operand.Value)
		return func(docs []bson.Raw) ([]bson.Raw, error) {
			made := make([]bson.Raw, len(docs))
			for i, doc := range docs {
				made[i] = p.Apply(doc)
			}
			return made, nil
		}, err
	case "$group":
		return parseGroup(operand)
	}
	return nil, Errorf(UnknownStage, "Unrecognized pipeline stage name: '%s': it is not known to the model", name)
}

func parseCut(name string, operand bson.RawValue) (stage, error) {
	n, ok := asInt64(operand)
	if name == "$limit" {
		if !ok || n <= 0 {
			return nil, Errorf(15958, "the limit must be positive, not %s", operand)
		}
		return func(docs []bson.Raw) ([]bson.Raw, error) { return docs[:min(n, int64(len(docs)))], nil }, nil
	}
	if !ok || n < 0 {
		return nil, Errorf(15956, "Argument to $skip cannot be negative, nor anything but a whole number: %s", operand)
	}
	return func(docs []bson.Raw) ([]bson.Raw, error) { return docs[min(n, int64(len(docs))):], nil }, nil
}
