package policypb

// UnmetConcerns is under which the metadata of a sidecar's node has the write
// concerns that its store does not meet, by topic: of MaxUnmetConcerns at most.
const (
	UnmetConcerns    = "unmet_concerns"
	MaxUnmetConcerns = 100
)
