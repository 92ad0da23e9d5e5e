package logging_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/internal/logging"
	"github.com/sluice-bus/sluice/test/lockedbuffer"
)

// logger returns a logger, and a function that returns the lines written since it was last called.
func logger() (log *slog.Logger, written func() []string, flush func()) {
	var out lockedbuffer.Buffer
	h, flush := logging.Throttle(slog.NewTextHandler(&out, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
	return slog.New(h), func() []string { return strings.Split(strings.TrimSuffix(out.Take(), "\n"), "\n") }, flush
}

func want(t *testing.T, got []string, lines ...string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(lines, "\n") {
		t.Errorf("written:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(lines, "\n"))
	}
}

func TestRepetitionsAreWrittenOncePerInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, written, _ := logger()
		for i := range 35 { // about one a second, none at the end of an Interval
			log.Warn("the store is away", "error", fmt.Errorf("attempt %d", i))
			time.Sleep(time.Second + time.Millisecond)
		}
		synctest.Wait()
		want(t, written(), `level=WARN msg="the store is away" error="attempt 0"`,
			`level=WARN msg="the store is away" error="attempt 9" left_out=8`,
			`level=WARN msg="the store is away" error="attempt 19" left_out=9`,
			`level=WARN msg="the store is away" error="attempt 29" left_out=9`)
		time.Sleep(2 * logging.Interval)
		want(t, written(), `level=WARN msg="the store is away" error="attempt 34" left_out=4`)
		log.Warn("the store is away")
		want(t, written(), `level=WARN msg="the store is away"`)
		time.Sleep(2 * logging.Interval)
	})
}

func TestWhatIsNoRepetition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, written, flush := logger()
		lines := func() {
			log.Warn("a")
			log.Error("a")
			log.Warn("b")
			log.Warn("a", "topic", "t")
			log.With("topic", "u").Warn("a", "code", 1)
			log.Info("policies changed", "version", 1)
			log.Info("policies changed", "version", 2)
		}
		lines()
		want(t, written(), `level=WARN msg=a`, `level=ERROR msg=a`, `level=WARN msg=b`, `level=WARN msg=a topic=t`,
			`level=WARN msg=a topic=u code=1`, `level=INFO msg="policies changed" version=1`, `level=INFO msg="policies changed" version=2`)
		lines()
		want(t, written(), "")
		flush()
		if n := len(written()); n != 7 {
			t.Errorf("%d lines of the last moment, want 7", n)
		}
		for range 3 {
			log.Info(logging.Access, "action", "publish", "topic", "t")
		}
		if n := len(written()); n != 3 {
			t.Errorf("%d lines of the access log, want 3", n)
		}
	})
}

func TestMessagesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, written, flush := logger()
		for i := range 2000 {
			log.Warn(fmt.Sprint("refused ", i))
		}
		if n := len(written()); n != 1001 {
			t.Errorf("%d lines, want the bound of 1000 and one for all others", n)
		}
		flush()
		want(t, written(), `level=WARN msg="refused 1999" left_out=998`)
	})
}

// An outage has a line for each topic and group, of which ten are told apart.
func TestLinesOfOneMessageAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, written, _ := logger()
		for range 3 {
			for i := range 200 {
				log.Warn("cannot read", "topic", fmt.Sprint(i))
				log.Info("deleted", "topic", fmt.Sprint(i))
			}
			text := strings.Join(written(), "\n")
			if trouble, others := strings.Count(text, "cannot read"), strings.Count(text, "deleted"); trouble != 11 || others != 200 {
				t.Errorf("%d lines of trouble, want the bound of 10 and one for all others; %d others, want all", trouble, others)
			}
			time.Sleep(3 * logging.Interval)
			want(t, written(), `level=WARN msg="cannot read" topic=199 left_out=188`)
		}
	})
}
