package sidecar

import (
	"github.com/sluice-bus/sluice/internal/instrument"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
)

// Metrics lists the sidecar's metrics.
func Metrics() []instrument.Metric { return telemetry.Reference() }
