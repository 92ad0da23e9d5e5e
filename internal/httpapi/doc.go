// Package httpapi is shared by the programs' HTTP listeners: errors as JSON, the guard against web
// pages, strict query parameters, routes, and a server with an owner.
package httpapi
