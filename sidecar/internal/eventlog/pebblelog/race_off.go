//go:build !race

package pebblelog

const mutatesWrites = false
