// Package schemas has the JSON Schemas of the files of settings, which make schemas makes.
package schemas

import _ "embed"

// SidecarConfig is the schema of a sidecar's settings.
//
//go:embed sluice-sidecar.config.json
var SidecarConfig []byte
