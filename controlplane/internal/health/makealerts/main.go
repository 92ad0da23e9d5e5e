// Command makealerts prints deploy/prometheus/alerts.yaml: make alerts runs it.
package main

import (
	"log"
	"os"

	"github.com/sluice-bus/sluice/controlplane/internal/health"
)

func main() {
	if err := health.WriteAlerts(os.Stdout); err != nil {
		log.Fatal(err)
	}
}
