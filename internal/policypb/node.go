package policypb

// UnmetConcerns is the key in a sidecar's node metadata of the write concerns that its store does
// not meet, by topic, at most MaxUnmetConcerns.
const (
	UnmetConcerns    = "unmet_concerns"
	MaxUnmetConcerns = 100
)
