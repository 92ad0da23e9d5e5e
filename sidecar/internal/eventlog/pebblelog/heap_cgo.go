//go:build cgo

package pebblelog

// onHeap says where Pebble's own buffers are.
const onHeap = false
