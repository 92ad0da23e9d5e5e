package query

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A Pipeline is an aggregation's stages.
type Pipeline struct {
	stages  []stage
	leading *Filter
}

// A stage makes documents of documents.
type stage func(docs []bson.Raw, now time.Time) ([]bson.Raw, error)

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

// Leading returns the filter of the $match that the pipeline starts with, or nil: an index may serve it.
func (p *Pipeline) Leading() *Filter { return p.leading }

// Run returns what the stages make of the documents, which are all of the collection or all that Leading selects.
func (p *Pipeline) Run(docs []bson.Raw, now time.Time) ([]bson.Raw, error) {
	for _, s := range p.stages {
		made, err := s(docs, now)
		if err != nil {
			return nil, err
		}
		docs = made
	}
	return docs, nil
}

func parseStage(name string, operand bson.RawValue) (stage, error) {
	switch name {
	case "$limit", "$skip":
		return parseCut(name, operand)
	case "$count":
		return parseCount(operand)
	case "$unwind":
		return parseUnwind(operand)
	case "$unset":
		p, err := unsetProjection(operand)
		return eachDocument(func(doc bson.Raw, _ time.Time) (bson.Raw, error) { return p.Apply(doc) }), err
	case "$replaceWith":
		return parseReplaceWith(operand)
	}
	if !isDocument(operand) {
		return nil, Errorf(UnknownStage, "%s with a %s is not known to the model", name, TypeName(operand))
	}
	switch name {
	case "$match":
		f, err := ParseFilter(operand.Value)
		return func(docs []bson.Raw, _ time.Time) ([]bson.Raw, error) { return matching(f, docs), nil }, err
	case "$sort":
		s, err := ParseSort(operand.Value)
		return func(docs []bson.Raw, _ time.Time) ([]bson.Raw, error) { return s.Sort(docs) }, err
	case "$project":
		p, err := ParseProjection(operand.Value)
		return eachDocument(func(doc bson.Raw, now time.Time) (bson.Raw, error) { return p.apply(doc, now) }), err
	case "$set", "$addFields":
		return parseAddFields(operand)
	case "$replaceRoot":
		return parseReplaceWith(Lookup(operand.Value, "newRoot"))
	case "$group":
		return parseGroup(operand)
	}
	return nil, Errorf(UnknownStage, "Unrecognized pipeline stage name: '%s': it is not known to the model", name)
}

func eachDocument(f func(bson.Raw, time.Time) (bson.Raw, error)) stage {
	return func(docs []bson.Raw, now time.Time) ([]bson.Raw, error) {
		made := make([]bson.Raw, len(docs))
		for i, doc := range docs {
			changed, err := f(doc, now)
			if err != nil {
				return nil, err
			}
			made[i] = changed
		}
		return made, nil
	}
}

func matching(f *Filter, docs []bson.Raw) []bson.Raw {
	var selected []bson.Raw
	for _, doc := range docs {
		if f.Match(doc) {
			selected = append(selected, doc)
		}
	}
	return selected
}

func parseCut(name string, operand bson.RawValue) (stage, error) {
	n, ok := asInt64(operand)
	if name == "$limit" {
		if !ok || n <= 0 {
			return nil, Errorf(15958, "the limit must be positive, not %s", operand)
		}
		return func(docs []bson.Raw, _ time.Time) ([]bson.Raw, error) { return docs[:min(n, int64(len(docs)))], nil }, nil
	}
	if !ok || n < 0 {
		return nil, Errorf(15956, "Argument to $skip cannot be negative, nor anything but a whole number: %s", operand)
	}
	return func(docs []bson.Raw, _ time.Time) ([]bson.Raw, error) { return docs[min(n, int64(len(docs))):], nil }, nil
}

// parseCount makes one document with the number of documents; none of none.
func parseCount(operand bson.RawValue) (stage, error) {
	if operand.Type != bson.TypeString || operand.StringValue() == "" || operand.StringValue()[0] == '$' {
		return nil, Errorf(40156, "the count field must be a non-empty string that starts with no '$', not %s", operand)
	}
	name := operand.StringValue()
	return func(docs []bson.Raw, _ time.Time) ([]bson.Raw, error) {
		if len(docs) == 0 {
			return nil, nil
		}
		return []bson.Raw{documentOf([]element{{name, intValue(int64(len(docs)))}}).Value}, nil
	}, nil
}

func parseAddFields(operand bson.RawValue) (stage, error) {
	var all []computed
	for k, v := range Fields(operand.Value) {
		path, err := parseUpdatePath(string(k))
		if err != nil {
			return nil, err
		}
		e, err := parseExpression(v)
		if err != nil {
			return nil, err
		}
		all = append(all, computed{path, e})
	}
	return eachDocument(func(doc bson.Raw, now time.Time) (bson.Raw, error) {
		return compute(doc, all, &scope{root: doc, now: now})
	}), nil
}

func parseReplaceWith(operand bson.RawValue) (stage, error) {
	if missing(operand) {
		return nil, Errorf(40231, "no newRoot specified for the $replaceRoot stage")
	}
	e, err := parseExpression(operand)
	return eachDocument(func(doc bson.Raw, now time.Time) (bson.Raw, error) {
		v, err := e(&scope{root: doc, now: now})
		if err == nil && !isDocument(v) {
			err = Errorf(40228, "'newRoot' expression must evaluate to an object, but resulting value was: %s", TypeName(v))
		}
		return v.Value, err
	}), err
}

// An unwinding makes a document of each element of an array.
type unwinding struct {
	path     []string
	index    string // the field that gets the element's position, or ""
	preserve bool   // keep documents without elements
}

func parseUnwind(operand bson.RawValue) (stage, error) {
	var u unwinding
	path := operand
	if isDocument(operand) {
		for k, v := range Fields(operand.Value) {
			switch string(k) {
			case "path":
				path = v
			case "preserveNullAndEmptyArrays":
				u.preserve = truth(v)
			case "includeArrayIndex":
				u.index, _ = v.StringValueOK()
			default:
				return nil, Errorf(28811, "unrecognized option to $unwind stage: %s", k)
			}
		}
	}
	text, _ := path.StringValueOK()
	name, ok := plainPath(text)
	if !ok {
		return nil, Errorf(28818, "path option to $unwind stage should be prefixed with a '$': %s", path)
	}
	u.path = splitPath(name)
	return func(docs []bson.Raw, _ time.Time) ([]bson.Raw, error) {
		var all []bson.Raw
		for _, doc := range docs {
			made, err := u.unwind(doc)
			if err != nil {
				return nil, err
			}
			all = append(all, made...)
		}
		return all, nil
	}, nil
}

func (u unwinding) unwind(doc bson.Raw) ([]bson.Raw, error) {
	v := follow(bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: doc}, u.path)
	absent := absentArgument([]bson.RawValue{v})
	switch {
	case absent && !u.preserve:
		return nil, nil
	case absent || !isArray(v):
		made, err := u.place(doc, v, nullValue())
		return []bson.Raw{made}, err
	}
	elements := values(v.Value)
	if len(elements) == 0 && u.preserve {
		made, err := u.place(doc, bson.RawValue{}, nullValue())
		return []bson.Raw{made}, err
	}
	var all []bson.Raw
	for i, x := range elements {
		made, err := u.place(doc, x, longValue(int64(i)))
		if err != nil {
			return nil, err
		}
		all = append(all, made)
	}
	return all, nil
}

func (u unwinding) place(doc bson.Raw, v, index bson.RawValue) (bson.Raw, error) {
	doc, err := modify(doc, u.path, false, func(bson.RawValue) (bson.RawValue, error) { return v, nil })
	if err != nil || u.index == "" {
		return doc, err
	}
	return modify(doc, splitPath(u.index), true, func(bson.RawValue) (bson.RawValue, error) { return index, nil })
}
