// Package bench has the policies under which the bench measures a sidecar.
package bench

import _ "embed"

// Policies are without the limits that protect a sidecar from what the bench does.
//
//go:embed policies.yaml
var Policies string
