package otlp

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestReportsComeOnceAMinute(t *testing.T) {
	synctest.Test(t, testReports)
}

func testReports(t *testing.T) {
	log, said := text(slog.LevelInfo)
	r := newReporter(log)
	lines := func() []string {
		all := strings.Split(strings.TrimSpace(said.String()), "\n")
		said.Reset()
		return all
	}

	r.failed("traces", 5, errors.New("refused"))
	if got := lines(); len(got) != 1 || !strings.Contains(got[0], "traces cannot be sent") ||
		!strings.Contains(got[0], "lost=5 error=refused") {
		t.Errorf("first: %q", got)
	}
	for range 10 {
		time.Sleep(time.Second)
		r.failed("traces", 2, errors.New("refused again"))
		r.dropped("traces")
	}
	if got := lines(); got[0] != "" {
		t.Errorf("within the minute: %q", got)
	}
	r.dropped("logs")
	if got := lines(); len(got) != 1 || !strings.Contains(got[0], "logs come faster than they can be sent") ||
		!strings.Contains(got[0], "dropped=1") {
		t.Errorf("another signal: %q", got)
	}
	time.Sleep(time.Minute)
	r.failed("traces", 2, errors.New("still"))
	if got := lines(); len(got) != 1 || !strings.Contains(got[0], "lost=22 dropped=10 error=still") {
		t.Errorf("after the minute: %q", got)
	}
	r.failed("traces", 1, errors.New("last"))
	r.flush()
	r.flush()
	if got := lines(); len(got) != 1 || !strings.Contains(got[0], "lost=1 error=last") {
		t.Errorf("at the end: %q", got)
	}
}

func TestWhatOpenTelemetrySaysItself(t *testing.T) {
	log, said := text(slog.LevelInfo)
	l := newReporter(log).sdkLog()
	l.V(4).Info("created a provider")
	if said.Len() > 0 {
		t.Errorf("the log has what concerns nobody: %s", said)
	}
	l.WithValues("in", "a test").V(1).Info("dropped log records", "dropped", 3)
	if !strings.Contains(said.String(), `error="msg=\"dropped log records\" in=\"a test\" dropped=3"`) {
		t.Errorf("the log says %s", said)
	}
}
