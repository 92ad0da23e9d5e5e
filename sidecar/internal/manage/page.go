package manage

import (
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// The sizes of a page of a list.
const (
	defaultPage = 100
	maxPage     = 1000
	// maxPageBytes bounds the events of a page: no more are added once they have that size.
	maxPageBytes = 4 << 20
)

// limitAndCursor reads the size of a page, and the text that nextCursor made the cursor from; ""
// for the first page.
func limitAndCursor(r *httpapi.Request) (limit int, cursor string, err error) {
	text, err := base64.RawURLEncoding.DecodeString(r.Text("cursor"))
	if err != nil {
		return 0, "", errCursor()
	}
	return int(r.Whole("limit")), string(text), nil
}

// paging are the parameters of a list.
func paging(more ...httpapi.Param) []httpapi.Param {
	return append(more,
		httpapi.Whole("limit", "the most that the answer lists", 1, maxPage).Or(strconv.Itoa(defaultPage)),
		httpapi.Text("cursor", "continues where an earlier answer ended: its next"))
}

// nextCursor is the cursor with which a list continues.
func nextCursor(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

func errCursor() error {
	return httpapi.BadParam("cursor", "it is not one that this list has given as next")
}

// pointText is a point in a list's cursor, and pointIn reads it; nil: there is none.
func pointText(ts int64, id string) string { return strconv.FormatInt(ts, 10) + "/" + id }

func pointIn(text string) *eventlog.Point {
	ts, id, _ := strings.Cut(text, "/")
	at, err := strconv.ParseInt(ts, 10, 64)
	if err != nil || codec.CheckTS(at) != nil || codec.CheckID(id) != nil {
		return nil
	}
	return &eventlog.Point{TS: at, ID: id}
}
