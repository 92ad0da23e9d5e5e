//go:build race

package figures

// raceDetector says that this is built with it.
const raceDetector = true
