package query

import (
	"go.mongodb.org/mongo-driver/v2/bson"
)

// A Projection says which fields of a document are returned.
type Projection struct {
	all       bool // keeps everything
	inclusion bool
	fields    *fieldTree
}

// A fieldTree is the fields that a projection names. One without children is named itself.
type fieldTree struct{ children map[string]*fieldTree }

// ParseProjection returns the projection that a document says. An empty or nil one keeps all.
func ParseProjection(doc bson.Raw) (*Projection, error) {
	if err := Validate(doc); err != nil {
		return nil, err
	}
	r := &projectionReader{p: &Projection{fields: &fieldTree{}}}
	if err := r.read("", doc); err != nil {
		return nil, err
	}
	return r.finish()
}

// A projectionReader collects the fields that a projection names until its kind is known: the _id
// may be an exception.
type projectionReader struct {
	p                  *Projection
	included, excluded string // a field of the kind, other than _id
	id                 int    // 1: included, -1: excluded
}

func (r *projectionReader) read(prefix string, doc []byte) error {
	for k, v := range Fields(doc) {
		name := prefix + string(k)
		var err error
		switch {
		case isNumber(v) || v.Type == bson.TypeBoolean:
			err = r.name(name, truth(v))
		case isDocument(v) && !isOperators(v) && len(elements(v.Value)) > 0:
			err = r.read(name+".", v.Value)
		default:
			err = Errorf(168, "%s: %s in a projection is not known to the model", name, v)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *projectionReader) name(name string, included bool) error {
	switch {
	case name == "_id" && included:
		r.id = 1
		return nil
	case name == "_id":
		r.id = -1
		return nil
	case included && r.excluded != "":
		return Errorf(31253, "Cannot do inclusion on field %s in exclusion projection", name)
	case !included && r.included != "":
		return Errorf(31254, "Cannot do exclusion on field %s in inclusion projection", name)
	case included:
		r.included = name
	default:
		r.excluded = name
	}
	return r.p.fields.add(splitPath(name), name)
}

func (r *projectionReader) finish() (*Projection, error) {
	p := r.p
	p.inclusion = r.included != "" || r.excluded == "" && r.id == 1
	p.all = r.included == "" && r.excluded == "" && r.id == 0
	// An inclusion keeps the _id unless it says otherwise, and an exclusion too.
	if named := r.id >= 0 == p.inclusion; !named || p.all {
		return p, nil
	}
	return p, p.fields.add([]string{"_id"}, "_id")
}

func (t *fieldTree) add(path []string, name string) error {
	for i, component := range path {
		if component == "" || component[0] == '$' {
			return Errorf(FailedToParse, "FieldPath %s is not known to the model", name)
		}
		child, found := t.children[component]
		if found && (len(child.children) == 0 || i == len(path)-1) {
			return Errorf(31249, "Path collision at %s", name)
		}
		if !found {
			child = &fieldTree{}
			if t.children == nil {
				t.children = map[string]*fieldTree{}
			}
			t.children[component] = child
		}
		t = child
	}
	return nil
}

// Apply returns the fields of the document that the projection keeps.
func (p *Projection) Apply(doc bson.Raw) bson.Raw {
	if p.all {
		return doc
	}
	return p.document(doc, p.fields)
}

func (p *Projection) document(doc []byte, t *fieldTree) bson.Raw {
	b := newBuilder(len(doc))
	for k, v := range Fields(doc) {
		child, named := t.children[string(k)]
		switch {
		case !named && !p.inclusion, named && len(child.children) == 0 && p.inclusion:
			b.add(string(k), v)
		case named && len(child.children) > 0:
			b.add(string(k), p.value(v, child))
		}
	}
	return b.doc()
}

func (p *Projection) value(v bson.RawValue, t *fieldTree) bson.RawValue {
	switch {
	case isDocument(v):
		return bson.RawValue{Type: v.Type, Value: p.document(v.Value, t)}
	case isArray(v):
		var all []bson.RawValue
		for _, x := range Fields(v.Value) {
			if kept := p.value(x, t); !missing(kept) {
				all = append(all, kept)
			}
		}
		return arrayOf(all)
	case p.inclusion:
		return bson.RawValue{}
	}
	return v
}
