package policy

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/sluice-bus/sluice/internal/schema"
)

// Compatibility is about readers and writers of different schemas: backward is
// for readers with the new one, who find events of the older; forward for readers
// with the older one, who find events of the new; full is for both. A transitive
// one is about all older versions that are kept, the others about the latest.
func (c Compatibility) backward() bool {
	return strings.HasPrefix(string(c), "backward") || strings.HasPrefix(string(c), "full")
}

func (c Compatibility) forward() bool {
	return strings.HasPrefix(string(c), "forward") || strings.HasPrefix(string(c), "full")
}

// Transitive reports whether all older versions count.
func (c Compatibility) Transitive() bool { return strings.HasSuffix(string(c), "_transitive") }

// Older is a schema that a new one is held against.
type Older struct {
	Name string // such as "version 3", in the reasons
	Text string
}

// Breaks says why a new schema, which compiles, does not go with older ones; none: it
// does. What the comparison takes comes out of a budget.
func (c Compatibility) Breaks(budget *schema.Budget, text string, older []Older) (reasons []string) {
	if c == CompatibilityNone || len(older) == 0 {
		return nil
	}
	const name = "the new schema"
	made, err := schema.Compile(text)
	if err != nil {
		return []string{fmt.Sprintf("%s %v", name, err)}
	}
	for _, o := range older {
		was, err := schema.Compile(o.Text)
		if err != nil { // an older program has let it in
			reasons = append(reasons, fmt.Sprintf("%s %v, so that it cannot be compared, which counts as incompatible", o.Name, err))
			continue
		}
		if c.backward() {
			reasons = append(reasons, budget.Breaks(was, made, o.Name, name)...)
		}
		if c.forward() {
			reasons = append(reasons, budget.Breaks(made, was, name, o.Name)...)
		}
	}
	return reasons
}

// SchemaDigest tells schemas apart: those that differ in spelling alone (spaces,
// the order of members) have the same one.
type SchemaDigest [sha256.Size]byte

// DigestOf is the digest of a schema's text, which is JSON.
func DigestOf(text string) SchemaDigest {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) == nil {
		if canonical, err := json.Marshal(v); err == nil { // with sorted members
			return sha256.Sum256(canonical)
		}
	}
	return sha256.Sum256([]byte(text))
}
