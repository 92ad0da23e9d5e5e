//go:build race

package simulation

// schedules is how many of them one test runs.
const schedules = 8
