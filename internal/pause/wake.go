package pause

// Wake wakes a goroutine that receives from it: once, however often it was set since.
type Wake chan struct{}

// NewWake makes one that is not set.
func NewWake() Wake { return make(Wake, 1) }

// Set never blocks.
func (w Wake) Set() {
	select {
	case w <- struct{}{}:
	default: // it is set already
	}
}
