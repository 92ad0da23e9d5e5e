package policypb

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Revision names a change in the control planes' store: the policies of an xDS response are as they
// were after it. It is the response's system_version_info, as SERIES/NUMBER. A sidecar never goes
// back to a lower one.
type Revision struct {
	// Series rises when an admin declares the store to be right in spite of its revisions, as after
	// a restore from a backup.
	Series int64
	Number int64 // counts the changes
}

// Compare is negative if r comes before other, and positive if it comes after it.
func (r Revision) Compare(other Revision) int {
	return cmp.Or(cmp.Compare(r.Series, other.Series), cmp.Compare(r.Number, other.Number))
}

func (r Revision) String() string {
	return strconv.FormatInt(r.Series, 10) + "/" + strconv.FormatInt(r.Number, 10)
}

// ParseRevision reads a revision that String wrote.
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
