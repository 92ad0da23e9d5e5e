//go:build !race

package simulation

// schedules is how many of them one test runs. The race detector makes them several times as long,
// and there is little that it could find in the next ones.
const schedules = 300
