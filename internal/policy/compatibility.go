package policy

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/sluice-bus/sluice/internal/schema"
)

// Compatibility is between readers and writers of different schemas. Backward is for readers with
// the new schema and events of an older one; forward is for readers with the older schema and
// events of the new one; full is both. A transitive one compares with all kept versions, the others
// with the latest.
func (c Compatibility) backward() bool {
	return strings.HasPrefix(string(c), "backward") || strings.HasPrefix(string(c), "full")
}

func (c Compatibility) forward() bool {
	return strings.HasPrefix(string(c), "forward") || strings.HasPrefix(string(c), "full")
}

// Transitive reports whether all older versions count.
func (c Compatibility) Transitive() bool { return strings.HasSuffix(string(c), "_transitive") }

// Older is an earlier schema that a new one is compared with.
type Older struct {
	Name string // such as "version 3", in the reasons
	Text string
}

// Breaks returns why a new schema, which compiles, is incompatible with older ones; none: it is
// compatible. The comparison spends from a budget.
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
		if err != nil {
			reasons = append(reasons, fmt.Sprintf("%s %v, so that it cannot be compared, which counts as incompatible", o.Name, err))
			continue
		}
		if c.backward() {
			reasons = append(reasons, budget.Breaks(was, made, o.Name, name)...)
		}
		if c.forward() {
			reasons = append(reasons, budget.Breaks(made, was, name, o.Name)...)
		}
		if budget.Spent() { // which the last reason says
			break
		}
	}
	return reasons
}

// SchemaDigest identifies a schema: schemas that differ only in spelling (spaces, the order of
// members) have the same digest.
type SchemaDigest [sha256.Size]byte

// DigestOf returns the digest of a schema's text, which is JSON.
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
