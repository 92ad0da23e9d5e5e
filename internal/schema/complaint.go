package schema

import (
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// complaint says what is wrong with a value: what it is or has, and what is
// allowed. It never quotes the value at length.
func complaint(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return fmt.Sprintf("is of type %s; allowed is %s", k.Got, strings.Join(k.Want, " or "))
	case *kind.Enum:
		return "is none of the values that enum allows"
	case *kind.Const:
		return "is not the value that const asks for"
	case *kind.FalseSchema:
		return "is not allowed at all"
	case *kind.AnyOf:
		return "fits none of the forms of anyOf"
	case *kind.OneOf:
		if len(k.Subschemas) > 0 {
			return "fits more than one of the forms of oneOf"
		}
		return "fits none of the forms of oneOf"
	case *kind.Not:
		return "has the form that not excludes"
	case *kind.PropertyNames:
		return fmt.Sprintf("has the member %s, whose name is not allowed", shown(k.Property))
	case *kind.Pattern:
		return "does not match the pattern " + shown(k.Want)
	case *kind.Format: // of a schema; payloads' formats are not looked at
		return fmt.Sprintf("is no %s that is understood: %s", k.Want, shortened(k.Err.Error()))
	}
	if c := complaintOfObject(k); c != "" {
		return c
	}
	if c := complaintOfSize(k); c != "" {
		return c
	}
	return "is refused by " + strings.Join(k.KeywordPath(), "/")
}

func complaintOfObject(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Required:
		return "lacks " + names(k.Missing)
	case *kind.DependentRequired:
		return fmt.Sprintf("has %s and lacks %s", shown(k.Prop), names(k.Missing))
	case *kind.Dependency:
		return fmt.Sprintf("has %s and lacks %s", shown(k.Prop), names(k.Missing))
	case *kind.AdditionalProperties:
		slices.Sort(k.Properties)
		return "has members that are not allowed: " + names(k.Properties)
	case *kind.AdditionalItems:
		return fmt.Sprintf("has %d elements too many", k.Count)
	case *kind.UniqueItems:
		return fmt.Sprintf("has equal elements, %d and %d", k.Duplicates[0], k.Duplicates[1])
	case *kind.Contains:
		return "has no element of the form that contains asks for"
	case *kind.MinContains:
		return fmt.Sprintf("has %d elements of the form that contains asks for; at least %d are needed", len(k.Got), k.Want)
	case *kind.MaxContains:
		return fmt.Sprintf("has %d elements of the form that contains asks for; at most %d are allowed", len(k.Got), k.Want)
	}
	return ""
}

func complaintOfSize(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.MinProperties:
		return fmt.Sprintf("has %d members; at least %d are needed", k.Got, k.Want)
	case *kind.MaxProperties:
		return fmt.Sprintf("has %d members; at most %d are allowed", k.Got, k.Want)
	case *kind.MinItems:
		return fmt.Sprintf("has %d elements; at least %d are needed", k.Got, k.Want)
	case *kind.MaxItems:
		return fmt.Sprintf("has %d elements; at most %d are allowed", k.Got, k.Want)
	case *kind.MinLength:
		return fmt.Sprintf("has %d characters; at least %d are needed", k.Got, k.Want)
	case *kind.MaxLength:
		return fmt.Sprintf("has %d characters; at most %d are allowed", k.Got, k.Want)
	case *kind.Minimum:
		return "must be at least " + decimal(k.Want)
	case *kind.Maximum:
		return "must be at most " + decimal(k.Want)
	case *kind.ExclusiveMinimum:
		return "must be more than " + decimal(k.Want)
	case *kind.ExclusiveMaximum:
		return "must be less than " + decimal(k.Want)
	case *kind.MultipleOf:
		return "must be a multiple of " + decimal(k.Want)
	}
	return ""
}

// decimal writes a number of a schema, which was a decimal fraction there.
func decimal(r *big.Rat) string {
	n, exact := r.FloatPrec()
	if !exact {
		return r.RatString()
	}
	return shortened(r.FloatString(n))
}

// mostNames is how many names a sentence lists.
const mostNames = 5

func names(list []string) string {
	var out []string
	for i, name := range list {
		if i == mostNames {
			return fmt.Sprintf("%s and %d more", strings.Join(out, ", "), len(list)-i)
		}
		out = append(out, shown(name))
	}
	return strings.Join(out, ", ")
}

// mostShown is how much of a text a sentence quotes, in bytes.
const mostShown = 100

func shown(text string) string { return fmt.Sprintf("%q", shortened(text)) }

func shortened(text string) string {
	if len(text) <= mostShown {
		return text
	}
	return strings.ToValidUTF8(text[:mostShown], "") + "…"
}
