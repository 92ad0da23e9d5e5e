package schema

import (
	"context"
	"testing"
)

// BenchmarkBreaks compares two versions of a schema as people write them.
func BenchmarkBreaks(b *testing.B) {
	writer, reader := compile(b, order), compile(b, order[:len(order)-2]+`,"other":{"type":"string"}}}`)
	b.ReportAllocs()
	for b.Loop() {
		if reasons := NewBudget(context.Background()).Breaks(writer, reader, "a", "b"); reasons != nil {
			b.Fatal(reasons)
		}
	}
}
