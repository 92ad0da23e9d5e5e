package admit

import "github.com/google/uuid"

// newID makes a UUIDv7.
func newID() string {
	id, err := uuid.NewV7()
	if err != nil {
		panic(err) // the system's random source never fails while it runs
	}
	return id.String()
}
