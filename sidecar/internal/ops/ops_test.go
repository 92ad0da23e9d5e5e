package ops

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/internal/httpapi"
)

// TestScrapesLeavePlaces: one identity's scrapes that are not read keep nobody else's out.
func TestScrapesLeavePlaces(t *testing.T) {
	all := budget.New(budget.Bounds{Memory: 1, Places: budget.DefaultPlaces(), Identities: true})
	begun, end := make(chan struct{}), make(chan struct{})
	metrics := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "slow" {
			begun <- struct{}{}
			<-end
		}
		_, _ = io.WriteString(w, "sluice_up 1\n")
	})
	s := New(metrics, slog.New(slog.DiscardHandler), httpapi.About{}, func(r *http.Request) *budget.Share {
		return all.Of(r.Header.Get("Authorization"))
	})
	s.Assembled(Parts{})
	scrape := func(as string) int {
		r := httptest.NewRequest("GET", "/metrics", nil)
		r.Header.Set("Authorization", as)
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		return w.Code
	}
	ended := make(chan int)
	places := int(budget.DefaultPlaces()[budget.Scrapes]) / budget.SharesOfAll
	for range places {
		go func() { ended <- scrape("slow") }()
		<-begun
	}
	if got := scrape("slow"); got != http.StatusServiceUnavailable {
		t.Errorf("one more of the same identity: %d", got)
	}
	if got := scrape("other"); got != http.StatusOK {
		t.Errorf("another identity: %d", got)
	}
	close(end)
	for range places {
		<-ended
	}
}
