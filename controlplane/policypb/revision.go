package policypb

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Revision is how far the policies are that a response of xDS has: which change
// of the control planes' store they follow. It is the response's
// system_version_info, as SERIES/NUMBER. What a sidecar runs never goes back to a
// lower one.
type Revision struct {
	// Series is higher once an admin has declared the store to be right whatever
	// its revisions, as after it was restored from a backup.
	Series int64
	Number int64 // counts the changes
}

// Compare is negative where r comes before other, and positive where it comes
// after it.
func (r Revision) Compare(other Revision) int {
	return cmp.Or(cmp.Compare(r.Series, other.Series), cmp.Compare(r.Number, other.Number))
}

func (r Revision) String() string {
	return strconv.FormatInt(r.Series, 10) + "/" + strconv.FormatInt(r.Number, 10)
}

// ParseRevision reads what String writes. Control planes of before there were
// revisions write something else.
func ParseRevision(text string) (r Revision, err error) {
	series, number, _ := strings.Cut(text, "/")
	if r.Series, err = strconv.ParseInt(series, 10, 64); err == nil {
		r.Number, err = strconv.ParseInt(number, 10, 64)
	}
	if err != nil || r.Series < 0 || r.Number < 0 {
		return Revision{}, fmt.Errorf("%.100q is not a revision", text)
	}
	return r, nil
}
