package scenarios

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-bus/sluice/bench/internal/load"
	"github.com/sluice-bus/sluice/sdk/wire/nearest"
)

// Parse reads scenarios with cases of one's own, in the file's order:
//
//	publish:
//	  - {name: our events, connections: 20, size: 900, keys: 5000}
//
// What a case leaves out is as in the scenario's first case.
func Parse(text []byte) (all []*Scenario, err error) {
	var file yaml.Node
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	if len(file.Content) == 0 || file.Content[0].Kind != yaml.MappingNode {
		return nil, errors.New("it has to have scenarios' names, and a list of cases for each")
	}
	for key, cases := range pairs(file.Content[0]) {
		s := Named(key.Value)
		switch {
		case s == nil:
			return nil, fmt.Errorf("line %d: there is no scenario %q%s", key.Line, key.Value, nearest.Hint(key.Value, Names()))
		case slices.ContainsFunc(all, func(other *Scenario) bool { return other.Name == s.Name }):
			return nil, fmt.Errorf("line %d: %s is there twice", key.Line, s.Name)
		case cases.Kind != yaml.SequenceNode || len(cases.Content) == 0:
			return nil, fmt.Errorf("line %d: %s has to have a list of cases", key.Line, s.Name)
		}
		own := *s
		own.Cases = nil
		for _, one := range cases.Content {
			c, err := s.parseCase(one)
			if err != nil {
				return nil, fmt.Errorf("line %d: %s: %w", one.Line, s.Name, err)
			}
			own.Cases = append(own.Cases, c)
		}
		all = append(all, &own)
	}
	return all, nil
}

// pairs are the keys of a mapping, and their values.
func pairs(mapping *yaml.Node) iter.Seq2[*yaml.Node, *yaml.Node] {
	return func(yield func(key, value *yaml.Node) bool) {
		for pair := range slices.Chunk(mapping.Content, 2) {
			if !yield(pair[0], pair[1]) {
				return
			}
		}
	}
}

// parseCase reads a case, and refuses a parameter that would change nothing.
func (s *Scenario) parseCase(node *yaml.Node) (c Case, err error) {
	if node.Kind != yaml.MappingNode {
		return c, fmt.Errorf("a case has a name and parameters: {name: ours, %s: …}", s.Uses[0])
	}
	for key := range pairs(node) {
		if key.Value != "name" && !slices.Contains(s.Uses, key.Value) {
			return c, fmt.Errorf("it does not use %s%s", key.Value, nearest.Known(key.Value, s.Uses))
		}
	}
	c.Params = s.Cases[0].Params
	if err := node.Decode(&c); err != nil {
		return c, err
	}
	if c.Name == "" {
		return c, errors.New("a case has no name")
	}
	if err := s.check(c.Params); err != nil {
		return c, fmt.Errorf("%s: %w", c.Name, err)
	}
	return c, nil
}

// check refuses parameters with which a scenario cannot run: what its first case has cannot be 0, but for keys.
func (s *Scenario) check(p Params) error {
	needed, numbers := s.Cases[0].numbers(), p.numbers()
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		least := min(1, needed[name])
		switch name {
		case "keys":
			least = 0 // events without one
		case "sidecars":
			least = max(least, float64(s.Needs.Sidecars))
		}
		if numbers[name] < least {
			return fmt.Errorf("%s is %v; it has to be at least %v", name, numbers[name], least)
		}
	}
	switch {
	case p.Size != 0 && p.Size < load.MinSize:
		return fmt.Errorf("size is %d; the time in the payload needs %d", p.Size, load.MinSize)
	case p.Transport != "" && p.Transport != load.TransportWS && p.Transport != load.TransportHTTP:
		return fmt.Errorf("transport is %q; it has to be %s or %s", p.Transport, load.TransportWS, load.TransportHTTP)
	case p.Transport == load.TransportHTTP && p.Depth > 1:
		return fmt.Errorf("depth is %d, but http has one request at a time on a connection: use connections", p.Depth)
	}
	return nil
}

// numbers are the parameters that are one, by the names that a file has for them.
func (p Params) numbers() map[string]float64 {
	return map[string]float64{
		"connections": float64(p.Connections), "depth": float64(p.Depth), "batch": float64(p.Batch), "frame": float64(p.Frame),
		"size": float64(p.Size), "keys": float64(p.Keys), "topics": float64(p.Topics), "groups": float64(p.Groups),
		"sidecars": float64(p.Sidecars), "events": float64(p.Events), "rate": p.Rate,
	}
}
