package limit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/limit"
)

func TestSetKeepsAndRetunes(t *testing.T) {
	s := limit.NewSet(1000)
	rates := limit.TopicRates{Events: limit.Rate{PerSecond: 1, Burst: 10}}
	s.Topic("orders", rates, epoch).Events.Take(4, epoch)
	if got := available(s.Topic("payments", rates, epoch).Events, epoch); got != 10 {
		t.Errorf("another topic has %d tokens, want 10", got)
	}
	rates.Events.Burst = 5
	if got := available(s.Topic("orders", rates, epoch).Events, epoch); got != 5 {
		t.Errorf("%d tokens after the retune, want 5 of the 6 that were left", got)
	}
}

func TestBytesBucketAdmitsTheLargestPublish(t *testing.T) {
	s := limit.NewSet(1000)
	small := s.Topic("small", limit.TopicRates{BytesPerSecond: 10}, epoch).Bytes
	if v := small.Take(1001, epoch); !v.OverBurst || v.Burst != 1000 {
		t.Errorf("more than the largest publish: %+v", v)
	}
	if v := small.Take(1000, epoch); !v.OK {
		t.Errorf("the largest publish is refused: %+v", v)
	}
	if v, want := small.Take(1000, epoch), 100*time.Second; v.Wait != want {
		t.Errorf("the next one waits %v, want %v", v.Wait, want)
	}
	if v := s.Topic("large", limit.TopicRates{BytesPerSecond: 5000}, epoch).Bytes.Take(5000, epoch); !v.OK {
		t.Errorf("a second's worth is refused: %+v", v)
	}
	if v := s.Topic("free", limit.TopicRates{}, epoch).Bytes.Take(1<<40, epoch); !v.OK {
		t.Errorf("refused without a limit: %+v", v)
	}
}

func TestSetForgetsIdleTopics(t *testing.T) {
	s := limit.NewSet(1000)
	rates := limit.TopicRates{Events: limit.Rate{PerSecond: 0.01, Burst: 2}}
	now := epoch
	for i := range 100_000 {
		now = now.Add(10 * time.Millisecond)
		s.Topic(fmt.Sprint("topic-", i), rates, now)
	}
	// 6,000 new topics are used within each minute.
	if got := s.Len(); got > 13_000 {
		t.Errorf("%d topics are kept, want at most twice those in use", got)
	}
}

func TestSetKeepsWhatIsNotFull(t *testing.T) {
	s := limit.NewSet(1000)
	rates := limit.TopicRates{Events: limit.Rate{PerSecond: 1e-6, Burst: 2}}
	s.Topic("busy", rates, epoch).Events.Take(2, epoch)
	now := epoch.Add(time.Hour)
	for i := range 10_000 {
		s.Topic(fmt.Sprint("topic-", i), rates, now)
	}
	if v := s.Topic("busy", rates, now).Events.Take(1, now); v.OK {
		t.Error("an emptied bucket was forgotten before it had refilled")
	}
}

func BenchmarkSetTopic(b *testing.B) {
	s := limit.NewSet(1000)
	rates := limit.TopicRates{Events: limit.Rate{PerSecond: 1e9, Burst: 10}}
	b.ReportAllocs()
	for b.Loop() {
		s.Topic("orders.created", rates, epoch)
	}
}
