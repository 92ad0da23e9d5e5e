// Package demo is a shop on Sluice, for people who want to see it work: four services whose load goes up and down, one of them
// slow, and one with a bad deployment every five minutes. It starts the sidecars and the control plane that the shop needs.
package demo
