package schema

import (
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

var english = message.NewPrinter(language.English)

// complaint describes a violation in the library's words, except where these would quote the whole
// value or all allowed values.
func complaint(k jsonschema.ErrorKind) string {
	why := ""
	switch k := k.(type) {
	case *kind.Enum:
		why = "value must be one of those of enum"
	case *kind.Pattern:
		why = "no match of pattern " + shown(k.Want)
	case *kind.Format: // of a schema; payloads' formats are not looked at
		why = fmt.Sprintf("not a valid %s: %v", k.Want, k.Err)
	case *kind.AdditionalProperties:
		slices.Sort(k.Properties)
	}
	if why == "" {
		why = shortened(k.LocalizedString(english), mostSaid)
	}
	return "is refused: " + why
}

// mostShown is how much of a text a sentence quotes, in bytes, and mostSaid how long the library's
// sentences may be.
const (
	mostShown = 100
	mostSaid  = 300
)

func shown(text string) string { return fmt.Sprintf("%q", shortened(text, mostShown)) }

func shortened(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
