// Package httpapi is what the programs' HTTP listeners have in common: errors
// as JSON, the guard against web pages, strict query parameters, routes, and a
// server whose life somebody owns. It knows the error vocabulary and nothing of
// topics, events or stores.
package httpapi
